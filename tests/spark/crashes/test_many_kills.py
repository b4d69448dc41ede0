"""Queries and jobs of many kinds in one driver, which is killed again and again at moments of chance.

AIOPRODUCER_SPARK_KILLS is how many of them are killed on each broker.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.conftest import ROW
from tests.spark.crashes.driver import Program, wait_until
from tests.spark.crashes.matrix import Matrix
from tests.spark.crashes.writes import ROWS, Cell

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(3_600)]

CELLS = [
    Cell(1, 1, "one", "nowhere", "stream", batches=10_000),
    Cell(1, 1, "one", "nowhere", "files", batches=10_000),
    Cell(1, 1, "one", "nowhere", "jobs", batches=10_000),
    Cell(2, 2, "each", "nowhere", "in turn", batches=10_000),
    Cell(2, 1, "one", "nowhere", "in turn", batches=10_000),
]
ROUNDS = -(-int(os.environ.get("AIOPRODUCER_SPARK_KILLS", "10")) // len(CELLS))
FILES = 2_000
LATEST_S = 3.0
"""After each query has done something, the driver is killed."""


def test_nothing_is_lost_or_twice_over_many_kills(
    kafka: KafkaCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Streams of numbers and files, functions with two writes, and jobs that a scheduler repeats."""
    matrix = Matrix(kafka, tmp_path / "cells", lambda row: record_property(ROW, tuple(row)))
    matrix.create_topics(CELLS)
    files = matrix.query(CELLS[1]).folder / "rows"
    files.mkdir(parents=True)
    for number in range(FILES):
        file = files / f"{number:04}.parquet"
        pq.write_table(pa.table({"value": list(range(number * ROWS, (number + 1) * ROWS))}), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest first
    chance = random.Random(kafka.version)
    for _ in range(ROUNDS):
        with matrix.program(CELLS) as program:
            wait_for_progress(matrix, program)
            time.sleep(chance.uniform(0, LATEST_S))
    last = [replace(cell, batches=matrix.query(cell).committed() + 2) for cell in CELLS]
    with matrix.program(last) as program:
        matrix.check(
            last, matrix.said(program), label=lambda cell: f"{ROUNDS} kills, {cell.batches} batches: {cell.name}"
        )


def wait_for_progress(matrix: Matrix, program: Program) -> None:
    """Return once each query has done a batch."""
    queries = [matrix.query(cell) for cell in CELLS]
    before = [query.committed() for query in queries]

    def is_done() -> bool:
        program.require_running()
        return all(query.committed() > count for query, count in zip(queries, before, strict=True))

    wait_until(is_done, lambda: program.log[-3000:])
