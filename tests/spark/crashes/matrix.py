"""Runs the queries of many cells in one program, and checks their topics."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import TableRow
from tests.spark.crashes.driver import Program, wait_until
from tests.spark.crashes.faulty_source import Faults
from tests.spark.crashes.topic import Topic
from tests.spark.crashes.writes import GO_ON, Cell, Query, as_arguments

Said = dict[str, str | None]
"""Name of a cell -> the error that ended its query, if one did."""
PATIENCE_S = 2_000.0


class Matrix:
    """Cells on a cluster.

    Args:
        kafka: running cluster.
        folder: for the queries; a program that finds one of an earlier program there goes on.
        show: a row of the table.
    """

    def __init__(self, kafka: KafkaCluster, folder: Path, show: Callable[[TableRow], None]) -> None:
        self._kafka = kafka
        self._folder = folder
        self._show = show

    def create_topics(self, cells: Sequence[Cell]) -> None:
        for name in (topic for cell in cells for topic in cell.all_topics):
            Topic(self._kafka.bootstrap_servers, name).create()

    def program(self, cells: Sequence[Cell]) -> Program:
        """Start the queries; use it in a `with`."""
        self._folder.mkdir(exist_ok=True)
        return Program(as_arguments(self._folder, cells, self._kafka.bootstrap_servers), self._folder)

    def said(self, program: Program, *, times: int = 1) -> Said:
        """Return the errors once each query has ended or stands still; or has ended, when it is said again."""

        def is_done() -> bool:
            program.require_running()
            return program.log.splitlines().count("done") == times

        wait_until(is_done, lambda: program.log[-3000:], PATIENCE_S)
        lines = [line for line in program.log.splitlines() if line.startswith('["cell"')]
        return {name: said for _, name, said in map(json.loads, lines)}

    def query(self, cell: Cell) -> Query:
        return Query(cell, self._folder / cell.name, self._kafka.bootstrap_servers)

    def stopped_processes(self, cells: Sequence[Cell]) -> list[int]:
        """Return the ids of the processes that stand still."""
        queries = [self.query(cell) for cell in cells]
        points = [(query, point) for query in queries for write in range(3) for point in query.points(write)]
        return [int(Faults(str(query.folder)).file_of(point).read_text("utf-8")) for query, point in points]

    def let_go_on(self, program: Program) -> None:
        """Let functions go on that stand still; the program waits for the end of its queries."""
        (self._folder / GO_ON).touch()
        program.say("go on")

    def check(
        self,
        cells: Sequence[Cell],
        said: Said,
        *,
        may_be_refused: bool = False,
        twice: Mapping[str, int] = MappingProxyType({}),
        label: Callable[[Cell], str] | None = None,
    ) -> None:
        """Add a row for each cell: each row is in its topic once, and no reader stands behind a transaction.

        Args:
            cells: that have run.
            said: the errors.
            may_be_refused: rows may be missing if a query has ended with an error.
            twice: how many rows are there twice, by name of a cell, where some are.
            label: of a row in the table.
        """
        wrong = []
        for cell in cells:
            doubled = missing = 0
            is_open = False
            for topic in cell.all_topics:
                found = Topic(self._kafka.bootstrap_servers, topic).read()
                doubled += sum(found.counts.values()) - len(found.counts)
                missing += len(cell.rows(topic) - set(found.counts))
                is_open |= bool(found.open_partitions) and cell.how != "stream"
            error = said[cell.name]
            named = cell.name if label is None else label(cell)
            shown = named if error is None else f"{named}: {first_words(error)}"
            self._show(TableRow(shown, self._kafka.version, doubled, missing, 0.0))
            is_refused = may_be_refused and error is not None
            if doubled != twice.get(cell.name, 0) or is_open or (not is_refused and (missing or error)):
                wrong.append((cell.name, f"{doubled} twice, {missing} missing, open: {is_open}, {error}"))
        assert not wrong, os.linesep.join(map(str, wrong))


def first_words(error: str) -> str:
    """Return what this package says in an error, which Python's and Spark's traces surround."""
    return " ".join(error[max(error.rfind("aioproducer."), 0) :].split())[:300]
