"""Spark's own Kafka source and sink, the peer: jars, fetched through Maven into the user's cache."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from aioproducer.testing.kafka.cache import cache_folder
from aioproducer.testing.kafka.programs import run_program

SPARK_VERSION = "4.2.0"
"""The newest for which they can be fetched; they run in 4.3, too."""
JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
FETCH_TIMEOUT_S = 900.0


def jars_folder() -> Path:
    return cache_folder().parent / "spark" / f"{SPARK_VERSION}-jars"


async def fetch_jars() -> None:
    """Fetch each jar alone, unless they are cached: their own list names a repository that may not answer."""
    if not jars_folder().is_dir():
        copy = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
        await fetch_into(jars_folder(), [[*copy, f"-Dartifact={jar}", "-DoutputDirectory="] for jar in JARS])


async def fetch_into(folder: Path, commands: Sequence[Sequence[str]]) -> None:
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
