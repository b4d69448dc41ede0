"""What the scenario `spark` needs besides the benchmark's own environment, kept in the user's cache.

~/.cache/aioproducer/spark/4.2.0/pyspark/...     PySpark, of the version for which Spark's own Kafka sink is released
~/.cache/aioproducer/spark/4.2.0-jars/*.jar      Spark's own sink
"""

import asyncio
import os
import random
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aioproducer.testing.kafka.java_process import run_program
from aioproducer.testing.kafka.kafka_jars import cache_folder, cache_lock

SPARK_VERSION = "4.2.0"
SINK_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
FETCH_TIMEOUT_S = 900.0
FILES = 4
ROW_GROUPS_PER_FILE = 16


def pyspark_folder() -> Path:
    """Return the folder that has PySpark; it goes in front of the module search path."""
    return cache_folder().parent / "spark" / SPARK_VERSION


def jars_folder() -> Path:
    """Return the folder of the jars of Spark's own sink."""
    return cache_folder().parent / "spark" / f"{SPARK_VERSION}-jars"


async def fetch_spark() -> None:
    """Fetch PySpark through pip and the sink's jars through Maven, unless they are cached.

    Raises:
        BrokerStartError: pip or Maven failed; with the start of what it said.
        TimeoutError: they took longer than 15 minutes.
    """
    async with cache_lock("spark"):
        if not pyspark_folder().is_dir():
            await _fetch(
                pyspark_folder(),
                [[sys.executable, "-m", "pip", "install", "-q", f"pyspark=={SPARK_VERSION}", "--target"]],
            )
        if not jars_folder().is_dir():
            copy = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
            await _fetch(jars_folder(), [[*copy, f"-Dartifact={jar}", "-DoutputDirectory="] for jar in SINK_JARS])


async def _fetch(folder: Path, commands: list[list[str]]) -> None:
    """Run commands, to which the folder is added, beside the folder, which is renamed into place at the end."""
    beside = folder.with_name(f".{folder.name}-{os.getpid()}")
    beside.mkdir(parents=True)
    try:
        for *command, last in commands:
            arguments = [*command, f"{last}{beside}"] if last.endswith("=") else [*command, last, str(beside)]
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                await run_program(arguments)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


async def written_files(folder: Path, rows: int, value_bytes: int) -> None:
    """Write Parquet files with a column `value` of random bytes."""
    await asyncio.to_thread(_write_files, folder, rows // FILES, value_bytes)


def _write_files(folder: Path, rows: int, value_bytes: int) -> None:
    source = random.Random(1)
    for number in range(FILES):
        data = pa.py_buffer(source.randbytes(rows * value_bytes))
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(value_bytes), rows, [None, data]).cast(pa.binary())
        table = pa.table({"value": values})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=-(-rows // ROW_GROUPS_PER_FILE))
