"""PySpark in a JVM of its own: files to Kafka, micro-batches and reading, with this package's format and Spark's own.

Each worker does its job three times in one session, and the third counts: the first two load classes, compile, and
start the Python workers.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aioproducer import Producer
from aioproducer.cli.load.settings import DEFAULT_PROPERTIES
from aioproducer.spark import recommended_conf
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import Split, find_splits
from aioproducer.spark._session import CONF_OF_ROW_GROUPS
from tests.benchmarks.brokers import records_in
from tests.benchmarks.job import Job, Outcome, percentile
from tests.benchmarks.spark_scenario import pyspark_folder
from tests.benchmarks.worker import ROOT, wait_for_go
from tests.spark_jars import jars_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, SPARKS = "aioproducer", "kafka"
"""Names of the formats."""

TIMES = 3
CORES = 2
ROWS_PER_BATCH = 1_000
WARMUP_BATCHES = 10
BATCHES_TIMEOUT_S = 150.0
TUNED = {"kafka.batch.size": "262144", "kafka.linger.ms": "5", "kafka.buffer.memory": str(64 * 2**20)}
DEFAULTS = {
    "input": "splits",
    "inputValue": "value",
    **{f"kafka.{name}": value for name, value in DEFAULT_PROPERTIES.items()},
}
"""Options of a write that `aioproducer load` gives."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def write(job: Job) -> Outcome:
    """`read.parquet` to this package's format."""
    return _write_files(job, OURS, {})


def write_exactly_once(job: Job) -> Outcome:
    """The same, each job all or nothing."""
    return _write_files(job, OURS, {"exactlyOnce": "true", "sinkId": job.topic})


def write_with_sparks(job: Job) -> Outcome:
    """`read.parquet` to Spark's own sink as it comes."""
    return _write_files(job, SPARKS, {})


def write_with_sparks_tuned(job: Job) -> Outcome:
    """The same with bigger batches, a linger and more memory."""
    return _write_files(job, SPARKS, TUNED)


def load(job: Job) -> Outcome:
    """`aioproducer load --master`: tasks read the row groups themselves."""
    return _load(job, {})


def load_exactly_once(job: Job) -> Outcome:
    """The same, each job all or nothing; the time of the commit by the report."""
    return _load(job, {"exactlyOnce": "true", "sinkId": job.topic})


def write_to_stalled(job: Job) -> Outcome:
    """`read.parquet` to this package's format while the broker is stopped: how much a Python worker grows."""
    with _session() as spark:
        writer = spark.read.parquet(job.folder).write.format(OURS).mode("append")
        save = writer.options(**_sink(job), **{"kafka.buffer.memory": str(job.buffer_memory)}).save
        save()  # its Python worker is used again
        before = _largest_python_mib()
        sizes = [before]
        done = threading.Event()

        def watch() -> None:
            # The broker stops while rows are on their way: a write does not begin without one.
            while asyncio.run(records_in(job.bootstrap_servers, job.topic_names, job.partitions)) == job.records:
                time.sleep(0.01)
            wait_for_go()
            while not done.wait(0.05):
                sizes.append(_largest_python_mib())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            save()  # on this thread: it has the active session
        finally:
            done.set()
            watching.join()
    return Outcome(2 * job.records, {"rss_growth_mib": max(sizes) - before})


def read(job: Job) -> Outcome:
    """This package's reader to Spark's `noop`."""
    return _read_topic(job, OURS)


def read_with_sparks(job: Job) -> Outcome:
    """Spark's own source to `noop`."""
    return _read_topic(job, SPARKS)


def batches_to_noop(job: Job) -> Outcome:
    """Micro-batches that go nowhere: Spark's own share."""
    return _micro_batches(job, "noop", {})


def batches(job: Job) -> Outcome:
    """Micro-batches to this package's format."""
    return _micro_batches(job, OURS, _sink(job))


def batches_exactly_once(job: Job) -> Outcome:
    """The same, exactly once."""
    return _micro_batches(job, OURS, {**_sink(job), "exactlyOnce": "true", "sinkId": job.topic})


def _write_files(job: Job, name: str, options: Mapping[str, str]) -> Outcome:
    with _session() as spark:
        files = spark.read.parquet(job.folder)
        writing = files.write.format(name).mode("append").options(**_sink(job), **options)
        figures = _third_of(job.records, writing.save)
        partitions = files.rdd.getNumPartitions()
    rows = TIMES * job.records
    markers = TIMES * partitions * job.partitions if "exactlyOnce" in options else 0
    return Outcome(_checked(job, rows, rows + markers), figures, {"tasks": str(partitions)})


def _load(job: Job, options: Mapping[str, str]) -> Outcome:
    found = find_splits([job.folder], RowShape(key=None, value="value"))
    splits: list[Split] = []
    while sum(each.rows for each in splits) < job.records:  # the files again, for more rows than they have
        splits += found[: (job.records - sum(each.rows for each in splits)) // found[0].rows]
    with _session(CONF_OF_ROW_GROUPS) as spark, tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        from aioproducer.spark._load_spark import load_row_groups  # noqa: PLC0415  # imports pyspark

        settings = {**_sink(job), **DEFAULTS, **options, "report": str(report)}
        figures = _third_of(job.records, lambda: load_row_groups(spark, splits, tasks=job.tasks, options=settings))
        if options:
            reported = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
            figures["commit_ms"] = reported[-1]["commit_seconds"] * 1000
    rows = TIMES * job.records
    return Outcome(_checked(job, rows, rows + (TIMES * job.tasks * job.partitions if options else 0)), figures)


def _read_topic(job: Job, name: str) -> Outcome:
    asyncio.run(_fill(job))
    with _session() as spark:
        reading = spark.read.format(name).option("kafka.bootstrap.servers", job.bootstrap_servers)
        frame = reading.option("subscribe", job.topic).option("startingOffsets", "earliest").load()
        counted: DataFrame = frame.selectExpr("count(value)")
        rows = counted.collect()[0][0]
        if rows != job.records:
            raise RuntimeError(f"{name} reads {rows:,} of {job.records:,} records")
        figures = _third_of(job.records, frame.write.format("noop").mode("overwrite").save)
    return Outcome(job.records, figures)


def _micro_batches(job: Job, name: str, options: Mapping[str, str]) -> Outcome:
    with _session() as spark, tempfile.TemporaryDirectory() as checkpoint:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        values = source.option("numPartitions", CORES).load().selectExpr("CAST(CAST(value AS STRING) AS BINARY) value")
        writing = values.writeStream.format(name).options(**options).option("checkpointLocation", checkpoint)
        query = writing.trigger(processingTime="0 seconds").start()
        deadline = time.monotonic() + BATCHES_TIMEOUT_S
        while (query.lastProgress or {"batchId": 0})["batchId"] < WARMUP_BATCHES + job.records:
            if not query.isActive or time.monotonic() > deadline:
                raise RuntimeError(f"the query ended early: {query.exception() or query.lastProgress}")
            time.sleep(0.2)
        done = query.recentProgress
        query.stop()
    durations = [float(each["batchDuration"]) for each in done if each["batchId"] >= WARMUP_BATCHES]
    rows = 0 if name == "noop" else ROWS_PER_BATCH * len(done)
    # the batch that `stop` meets may be in the log in part
    figures = {"batch_ms": percentile(durations, 50), "slow_batch_ms": percentile(durations, 90)}
    return Outcome(_checked(job, rows, rows + 2 * ROWS_PER_BATCH + 20 * len(done)), figures)


def _sink(job: Job) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job.bootstrap_servers, "topic": job.topic}


def _checked(job: Job, at_least: int, at_most: int) -> int:
    """Return the end offsets' sum, which markers of transactions are part of."""
    stored = asyncio.run(records_in(job.bootstrap_servers, job.topic_names, job.partitions))
    if not at_least <= stored <= at_most:
        raise RuntimeError(f"the broker has {stored:,} records and markers, not {at_least:,} to {at_most:,}")
    return stored


async def _fill(job: Job) -> None:
    async with Producer(job.bootstrap_servers) as producer:
        for _ in range(0, job.records, 10_000):
            await producer.send_many(job.topic, [job.value] * min(10_000, job.records))


def _third_of(rows: int, do: Callable[[], None]) -> dict[str, float]:
    """Do something three times, and return rate and cost of the third."""
    for _ in range(TIMES - 1):
        do()
    jvm_s, python_s = _cpu_s(os.getpid())
    started = time.perf_counter()
    do()
    seconds = time.perf_counter() - started
    jvm_s, python_s = (after - before for after, before in zip(_cpu_s(os.getpid()), (jvm_s, python_s), strict=True))
    return {
        "records_per_s": rows / seconds,
        "cpu_us_per_record": (jvm_s + python_s) / rows * 1e6,
        "jvm_us_per_record": jvm_s / rows * 1e6,
        "python_us_per_record": python_s / rows * 1e6,
    }


@contextmanager
def _session(more: Mapping[str, str] | None = None) -> "Iterator[SparkSession]":
    """Start a JVM with PySpark from the cache, whatever version this environment has."""
    os.environ.pop("SPARK_HOME", None)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(pyspark_folder()), str(ROOT)])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    sys.path.insert(0, str(pyspark_folder()))
    from pyspark.sql import SparkSession  # noqa: PLC0415  # the path is set above

    conf: dict[str, bool | float | int | str | None] = {
        **recommended_conf(),
        "spark.jars": ",".join(str(jar) for jar in sorted(jars_folder().glob("*.jar"))),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **(more or {}),
    }
    spark = SparkSession.builder.master(f"local[{CORES},4]").config(map=conf).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _largest_python_mib() -> float:
    """Return the resident memory of the largest Python worker below this process."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.partition(":")[::2] for line in (folder / "status").read_text().splitlines())
        except OSError:
            continue  # it ended meanwhile
        parents[int(folder.name)] = int(status["PPid"])
        if status["Name"].strip().startswith("python"):
            sizes[int(folder.name)] = int(status.get("VmRSS", "0 kB").split()[0]) / 1024
    return max((size for process, size in sizes.items() if _is_below(os.getpid(), process, parents)), default=0.0)


def _is_below(root: int, process: int, parents: Mapping[int, int]) -> bool:
    ancestor = parents[process]
    while ancestor not in {root, 0}:
        ancestor = parents.get(ancestor, 0)
    return ancestor == root


def _cpu_s(root: int) -> tuple[float, float]:
    """Return the CPU seconds of the JVM below a process, and of the Python workers below that, dead ones included."""
    parents, seconds = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        fields = rest.split()
        user, system, of_dead_user, of_dead_system = (int(ticks) / TICKS_PER_S for ticks in fields[11:15])
        parents[int(folder.name)] = int(fields[1])
        # children of the JVM that have ended are Python
        seconds[int(folder.name)] = (name == "java", user + system, of_dead_user + of_dead_system)
    jvm_s = python_s = 0.0
    for process, (is_jvm, own, of_dead) in seconds.items():
        if _is_below(root, process, parents):
            jvm_s += own if is_jvm else 0.0
            python_s += of_dead if is_jvm else own + of_dead
    return jvm_s, python_s
