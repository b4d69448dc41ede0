"""The scenario `spark`: this package's data source beside Spark's own sink and source, each run in a fresh JVM.

What it needs besides the benchmark's own environment is kept in the user's cache:

~/.cache/aioproducer/spark/4.2.0/pyspark/...     PySpark, of the version for which Spark's own Kafka sink is released
~/.cache/aioproducer/spark/4.2.0-jars/*.jar      Spark's own sink
"""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aioproducer.testing.kafka.cache import cache_folder, cache_lock
from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.job import Job
from tests.benchmarks.report import OURS, Comparison, Row, ScenarioReport, median_of, ratio
from tests.spark_jars import SPARK_VERSION, fetch_into, fetch_jars

FILE_COUNT = 4
ROW_GROUPS_PER_FILE = 16


def pyspark_folder() -> Path:
    """Return the folder that has PySpark; it goes in front of the module search path."""
    return cache_folder().parent / "spark" / SPARK_VERSION


async def fetch_spark() -> None:
    """Fetch PySpark through pip and the sink's jars through Maven, unless they are cached."""
    async with cache_lock("spark"):
        if not pyspark_folder().is_dir():
            install = [sys.executable, "-m", "pip", "install", "-q", f"pyspark=={SPARK_VERSION}", "--target"]
            await fetch_into(pyspark_folder(), [install])
        await fetch_jars()


async def written_files(folder: Path, rows: int, value_bytes: int) -> None:
    """Write Parquet files with a column `value` of random bytes."""
    await asyncio.to_thread(_write_files, folder, rows // FILE_COUNT, value_bytes)


def _write_files(folder: Path, rows: int, value_bytes: int) -> None:
    source = random.Random(1)
    for number in range(FILE_COUNT):
        data = pa.py_buffer(source.randbytes(rows * value_bytes))
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(value_bytes), rows, [None, data]).cast(pa.binary())
        table = pa.table({"value": values})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=-(-rows // ROW_GROUPS_PER_FILE))


ONCE, SPARKS, TUNED, NOOP = f"{OURS}, exactly once", "Spark's own", "Spark's own, tuned", "noop"
LOAD, LOAD_ONCE = "aioproducer load", "aioproducer load, exactly once"
FILES, BATCHES, READ = "Parquet to Kafka", "batches of 1,000", "Kafka to noop"
MANY_TASKS, SOME_TASKS = "64 tasks", "16 tasks"
A_QUARTER, TWICE = "a quarter of the rows", "twice the rows"
STALLED = "broker stopped"
STALL_S = 15
TASKS = 2
BUFFER_MEMORY = 33_554_432
ROUTES = {
    # (client, variant) -> work
    (OURS, FILES): "spark.write",
    (ONCE, FILES): "spark.write_exactly_once",
    (SPARKS, FILES): "spark.write_with_sparks",
    (TUNED, FILES): "spark.write_with_sparks_tuned",
    (LOAD, FILES): "spark.load",
    (LOAD, A_QUARTER): "spark.load",
    (LOAD, TWICE): "spark.load",
    (LOAD, MANY_TASKS): "spark.load",
    (LOAD_ONCE, SOME_TASKS): "spark.load_exactly_once",
    (LOAD_ONCE, MANY_TASKS): "spark.load_exactly_once",
    (NOOP, BATCHES): "spark.batches_to_noop",
    (OURS, BATCHES): "spark.batches",
    (ONCE, BATCHES): "spark.batches_exactly_once",
    (OURS, READ): "spark.read",
    (SPARKS, READ): "spark.read_with_sparks",
}
OTHER_TASKS = {MANY_TASKS: 64, SOME_TASKS: 16}
RATE, CPU, BATCH, COMMIT = "records_per_s", "cpu_us_per_record", "batch_ms", "commit_ms"
Route = tuple[str, str]
COMPARED: Sequence[tuple[str, str, Route, Route]] = (
    ("rate / Spark's sink", RATE, (OURS, FILES), (SPARKS, FILES)),
    ("rate / Spark's sink, tuned", RATE, (OURS, FILES), (TUNED, FILES)),
    ("JVM + Python CPU / Spark's sink", CPU, (OURS, FILES), (SPARKS, FILES)),
    ("load, rate / Spark's sink", RATE, (LOAD, FILES), (SPARKS, FILES)),
    ("load, JVM + Python CPU / Spark's sink", CPU, (LOAD, FILES), (SPARKS, FILES)),
    ("rate, exactly once / plain", RATE, (ONCE, FILES), (OURS, FILES)),
    ("micro-batch, duration / noop", BATCH, (OURS, BATCHES), (NOOP, BATCHES)),
    ("micro-batch, exactly once, duration / noop", BATCH, (ONCE, BATCHES), (NOOP, BATCHES)),
    ("reader, rate / Spark's source", RATE, (OURS, READ), (SPARKS, READ)),
    ("load, CPU a row: twice the rows / a quarter", CPU, (LOAD, TWICE), (LOAD, A_QUARTER)),
    ("load, CPU a row: 64 tasks / 2", CPU, (LOAD, MANY_TASKS), (LOAD, FILES)),
    ("load, time of the commit: 64 tasks / 16", COMMIT, (LOAD_ONCE, MANY_TASKS), (LOAD_ONCE, SOME_TASKS)),
)
"""Measure, figure, the route and the other that it is compared with."""


async def spark(bench: Bench) -> ScenarioReport:
    """Measure files to Kafka, micro-batches, and reading."""
    await fetch_spark()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as folder:
        sizes = {
            FILES: bench.size(4_000_000, 200_000),
            BATCHES: bench.size(40, 10),
            READ: bench.size(2_000_000, 100_000),
        }
        rows_of_files = sizes[FILES]
        sizes |= {A_QUARTER: rows_of_files // 4, TWICE: rows_of_files * 2}
        sizes |= dict.fromkeys(OTHER_TASKS, rows_of_files)
        await written_files(Path(folder), rows_of_files, Job(work="").value_bytes)
        contestants = [
            Contestant(
                client,
                variant,
                Job(work=work, records=sizes[variant], tasks=OTHER_TASKS.get(variant, TASKS), folder=folder),
            )
            for (client, variant), work in ROUTES.items()
        ]
        stalled = Job(work="spark.write_to_stalled", records=rows_of_files, folder=folder, buffer_memory=BUFFER_MEMORY)
        contestants.append(Contestant(OURS, STALLED, stalled, bench.size(STALL_S, 2)))
        rows = await bench.measure(contestants)
    notes = [
        f"PySpark {SPARK_VERSION}, local[2,4], a fresh JVM for each route and round; the third job of a session counts",
        f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after",
    ]
    return ScenarioReport("spark", "PySpark, 100 random bytes a row", rows, _comparisons(rows), notes)


def _comparisons(rows: Sequence[Row]) -> list[Comparison]:
    growth = median_of(rows, OURS, STALLED, "rss_growth_mib")
    beyond = None if growth is None else growth - BUFFER_MEMORY / 2**20
    return [
        *(
            Comparison(measure, ratio(median_of(rows, *route, figure), median_of(rows, *other, figure)))
            for measure, figure, route, other in COMPARED
        ),
        Comparison("broker stopped: growth of a worker beyond buffer_memory, MiB", beyond),
    ]
