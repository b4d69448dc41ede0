"""The command line of the benchmark: `nox -s bench -- OPTIONS`."""

import argparse
import asyncio
import datetime as dt
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from aioproducer.testing.kafka import BrokerStartError
from aioproducer.testing.kafka.cache import kafka_jars
from aioproducer.testing.kafka.prerequisites import java_program
from tests.benchmarks.bench_run import Bench
from tests.benchmarks.brokers import KAFKA_VERSION, embedded_broker, given_broker, real_broker
from tests.benchmarks.job import Job
from tests.benchmarks.report import WIDTH, BenchReport, print_report
from tests.benchmarks.scenarios import AWAITED, ENQUEUE, ONLY_WHEN_NAMED, SCENARIOS
from tests.benchmarks.spark_scenario import ROUTES

LIBRARIES = ("aioproducer", "uvloop", "confluent-kafka", "aiokafka", "kafka-python")
"""Distributions whose versions are reported."""


def machine() -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    found = {"Python": f"{platform.python_implementation()} {platform.python_version()}"}
    for library in LIBRARIES:
        found[library] = importlib.metadata.version(library)
    found["Java"] = _java_version()
    return found


def _processor() -> str:
    """Return the model's name from Linux's /proc, else from Python."""
    cpu_info = Path("/proc/cpuinfo")
    text = cpu_info.read_text("utf-8") if cpu_info.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def _java_version() -> str:
    java = java_program()
    if java is None:
        return "not installed"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "([^"]+)"', answer.stderr)
    return version[1] if version else "unknown"


CLIENTS = sorted({*ENQUEUE, *AWAITED, *(client for client, _ in ROUTES)})


def main() -> int:
    """Measure, print and write the report; returns 1 if a client failed or the run was interrupted."""
    options = _options()
    if options.json is not None:
        options.json.open("a").close()  # fails before the time is spent
    report = BenchReport(
        started=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=" ".join(["nox -s bench --", *sys.argv[1:]]),
        machine=machine(),
        versions=versions(),
    )
    failures: list[str] = []
    try:
        asyncio.run(_measure(options, report, failures))
    except (KeyboardInterrupt, BrokerStartError) as ended:
        failures.append(f"{str(ended) or 'interrupted'}; no file was written")
    else:
        if options.json is not None:
            options.json.write_text(report.to_json(), "utf-8")
    print_report(Console(width=WIDTH), report)
    for failure in failures:
        _say(f"failed: {failure}")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nox -s bench --",
        description=f"Measure this producer beside other clients on real Kafka {KAFKA_VERSION}, for about 25 minutes.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="measure on a running cluster")
    where.add_argument("--embedded", action="store_true", help="measure on the embedded cluster, which needs no Java")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="only this scenario; may be repeated")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client; may be repeated")
    parser.add_argument("--rounds", type=int, help="measurements of each client; 5 unless given, 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to this file")
    return parser.parse_args()


async def _measure(options: argparse.Namespace, report: BenchReport, failures: list[str]) -> None:
    given = options.bootstrap_server
    broker = given_broker(given) if given else embedded_broker() if options.embedded else real_broker(KAFKA_VERSION)
    async with broker as measured:
        bench = Bench(
            measured,
            _say,
            is_quick=options.quick,
            rounds=options.rounds or (1 if options.quick else 5),
            java_jars=await _java_jars(),
            clients=options.client or (),
            failures=failures,
        )
        report.broker = measured.name
        report.settings.update(bench.settings())
        records = bench.size(10_000_000, 20_000)
        # the second job warms up the broker's checks of idempotent producers
        await bench.warm_up(
            Job(work="raw_socket.enqueue", records=records), Job(work="ours.enqueue", records=records // 10)
        )
        for name in options.only or [name for name in SCENARIOS if name not in ONLY_WHEN_NAMED]:
            _say(f"--- {name}")
            report.scenarios.append(await SCENARIOS[name](bench))


async def _java_jars() -> str:
    """Return the class path of Java's load generator, or nothing, with the reason printed."""
    try:
        return str(await kafka_jars(KAFKA_VERSION, tools=True))
    except BrokerStartError as missing:
        _say(f"without the Java producer: {missing}")
        return ""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
