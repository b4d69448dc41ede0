"""Functions of `foreachBatch` that write several times, killed before, within, between and after the writes."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.conftest import ROW
from tests.spark.crashes.case import GATE
from tests.spark.crashes.matrix import Matrix, Said
from tests.spark.crashes.writes import Cell

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]


def points(writes: int) -> list[str]:
    """Where a function of so many writes is killed."""
    within = [f"{at} {writes}" for at in ("decision", "round.half", "round")]
    return ["before", *(f"after {number}" for number in range(1, writes + 1)), *within]


MATRIX = [
    Cell(1, point="round.half 1", how="stream"),
    *(
        Cell(writes, topics, sinks, point)  # type: ignore[arg-type]
        for writes, topics, sinks in itertools.product((1, 2, 3), (1, 2), ("one", "each"))
        if writes > 1 or (topics, sinks) == (1, "one")
        for point in points(writes)
    ),
]
IN_THE_GATE = [
    *(Cell(1, point=point, how="stream", test="gate") for point in ("decision 1", "round 1")),
    Cell(2, 1, "one", "after 1", test="gate"),
    Cell(2, 2, "each", "after 2", test="gate"),
    Cell(2, point="nowhere", how="again after a row", test="gate"),
]
WITH_THREADS = [Cell(3, 2, "each", point, "threads") for point in ("before", "round.half 2", "after 3")]
THREADS_OF_ONE_SINK = [Cell(2, topics, "one", "nowhere", "threads") for topics in (1, 2)]
AGAIN = [
    Cell(writes, topics, sinks, "nowhere", how)  # type: ignore[arg-type]
    for writes, topics, sinks in ((1, 1, "one"), (2, 1, "one"), (2, 2, "each"))
    for how in ("again after a row", "again after a round")
]


@pytest.fixture
def matrix(kafka: KafkaCluster, tmp_path: Path, record_property: Callable[[str, object], None]) -> Matrix:
    return Matrix(kafka, tmp_path / "cells", lambda row: record_property(ROW, tuple(row)))


def killed_and_run_again(matrix: Matrix, cells: Sequence[Cell]) -> Said:
    """Return what the first run said; the second, with other tasks, says nothing, and each row is there once."""
    matrix.create_topics(cells)
    with matrix.program(cells) as program:
        first = matrix.said(program)
    with matrix.program(cells) as program:
        matrix.check(cells, matrix.said(program))
    return first


@GATE
def test_each_write_is_once_over_a_kill(matrix: Matrix) -> None:
    """One of a stream; two under one sinkId, and under one each; and one that the function tries again."""
    assert set(killed_and_run_again(matrix, IN_THE_GATE).values()) == {None}


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_matrix_of_writes_topics_and_sinks(matrix: Matrix, writes: int) -> None:
    """Killed at each point of a batch; run again before the transactions time out that are left open."""
    cells = [cell for cell in MATRIX if cell.writes == writes]
    assert set(killed_and_run_again(matrix, cells).values()) == {None}


def test_writes_in_threads_have_a_sink_each(matrix: Matrix) -> None:
    assert set(killed_and_run_again(matrix, WITH_THREADS).values()) == {None}


def test_writes_in_threads_under_one_sink_are_refused(matrix: Matrix) -> None:
    """Or each row is there once, if one write was over before the next began."""
    matrix.create_topics(THREADS_OF_ONE_SINK)
    with matrix.program(THREADS_OF_ONE_SINK) as program:
        said = matrix.said(program)
    matrix.check(THREADS_OF_ONE_SINK, said, may_be_refused=True)
    assert all("sinkId" in (each or "sinkId") for each in said.values())


def test_function_may_try_a_write_again(matrix: Matrix) -> None:
    """One that failed before its decision; after it the query ends, and its next start goes on."""
    first = killed_and_run_again(matrix, AGAIN)
    for cell in AGAIN:
        said = first[cell.name]
        if cell.how == "again after a row":
            assert said is None
        else:
            assert said is not None
            assert "its commit did not come to its end in this run" in said
