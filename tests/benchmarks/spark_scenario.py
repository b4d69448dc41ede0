"""The scenario `spark`: this package's data source beside Spark's own sink and source, each run in a fresh JVM."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.job import Job
from tests.benchmarks.report import OURS, Comparison, Row, ScenarioReport, median_of, ratio
from tests.benchmarks.spark_setup import SPARK_VERSION, fetch_spark, written_files

ONCE, SPARKS, TUNED, NOOP = f"{OURS}, exactly once", "Spark's own", "Spark's own, tuned", "noop"
FILES, BATCHES, READ = "Parquet to Kafka", "batches of 1,000", "Kafka to noop"
ROUTES = {
    # (client, variant) -> work
    (OURS, FILES): "spark.write",
    (ONCE, FILES): "spark.write_exactly_once",
    (SPARKS, FILES): "spark.write_with_sparks",
    (TUNED, FILES): "spark.write_with_sparks_tuned",
    (NOOP, BATCHES): "spark.batches_to_noop",
    (OURS, BATCHES): "spark.batches",
    (ONCE, BATCHES): "spark.batches_exactly_once",
    (OURS, READ): "spark.read",
    (SPARKS, READ): "spark.read_with_sparks",
}
CPU, BATCH = "cpu_us_per_record", "batch_ms"
COMPARED: Sequence[tuple[str, str, tuple[str, str], str]] = (
    ("rate / Spark's sink", "records_per_s", (OURS, SPARKS), FILES),
    ("rate / Spark's sink, tuned", "records_per_s", (OURS, TUNED), FILES),
    ("JVM + Python CPU / Spark's sink", CPU, (OURS, SPARKS), FILES),
    ("rate, exactly once / plain", "records_per_s", (ONCE, OURS), FILES),
    ("micro-batch, duration / noop", BATCH, (OURS, NOOP), BATCHES),
    ("micro-batch, exactly once, duration / noop", BATCH, (ONCE, NOOP), BATCHES),
    ("reader, rate / Spark's source", "records_per_s", (OURS, SPARKS), READ),
)
"""Measure, figure, the client and the other that it is compared with, variant."""


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
        await written_files(Path(folder), sizes[FILES], Job(work="").value_bytes)
        contestants = [
            Contestant(client, variant, Job(work=work, records=sizes[variant], folder=folder))
            for (client, variant), work in ROUTES.items()
        ]
        rows = await bench.measure(contestants)
    notes = [
        f"PySpark {SPARK_VERSION}, local[2,4], a fresh JVM for each route and round; the third job of a session counts",
        f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after",
    ]
    return ScenarioReport("spark", "PySpark, 100 random bytes a row", rows, _comparisons(rows), notes)


def _comparisons(rows: Sequence[Row]) -> list[Comparison]:
    return [
        Comparison(measure, ratio(*(median_of(rows, each, variant, figure) for each in clients)))
        for measure, figure, clients, variant in COMPARED
    ]
