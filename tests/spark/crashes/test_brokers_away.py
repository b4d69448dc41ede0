"""The only broker is away at each step of a batch: running queries go on when it is back.

For as many seconds as AIOPRODUCER_SPARK_OUTAGES_S lists.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.spark.conftest import ROW
from tests.spark.crashes.driver import send
from tests.spark.crashes.matrix import Matrix
from tests.spark.crashes.writes import Cell

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

OUTAGES_S = os.environ.get("AIOPRODUCER_SPARK_OUTAGES_S", "20").split(",")
STEPS = (
    "task.begin",
    "task.rows",
    "task.end",
    "commit",
    "decision",
    "decided.half",
    "round.half",
    "round.end",
    "round",
)
CELLS = [
    *(Cell(1, 1, "one", f"{step} 1", "stream") for step in STEPS),
    *(Cell(1, 1, "one", point) for point in ("before", "after 1", "decision 1", "round.half 1")),
]


@pytest.fixture(params=["4.4.0", "3.9.1"])
def own_kafka(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One node that the test may kill."""
    yield from running_kafka(request.param, kafka_thread)


@pytest.fixture
def matrix(own_kafka: KafkaCluster, tmp_path: Path, record_property: Callable[[str, object], None]) -> Matrix:
    return Matrix(own_kafka, tmp_path / "cells", lambda row: record_property(ROW, tuple(row)))


@pytest.mark.parametrize("outage_s", OUTAGES_S)
def test_running_queries_go_on_after_an_outage(
    matrix: Matrix, own_kafka: KafkaCluster, kafka_thread: ThreadPoolExecutor, *, outage_s: str
) -> None:
    """Longer than the first contact of a job may take; plain functions of `foreachBatch` too."""

    def on_broker(act: Callable[[int], Awaitable[None]]) -> None:
        kafka_thread.submit(lambda: asyncio.run(_await(act(1)))).result()

    matrix.create_topics(CELLS)
    with matrix.program(CELLS) as program:
        assert set(matrix.said(program).values()) == {None}
        on_broker(own_kafka.kill)
        for process in matrix.stopped_processes(CELLS):
            send(process, signal.SIGCONT)
        matrix.let_go_on(program)
        time.sleep(float(outage_s))  # this is what is tested
        on_broker(own_kafka.restart)
        said = matrix.said(program, times=2)
        matrix.check(CELLS, said, label=lambda cell: f"away for {outage_s} s: {cell.how}, {cell.point}")


async def _await(answer: Awaitable[None]) -> None:
    await answer
