"""One case: a sink, its topic, and the drivers that write to it one after another."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from aioproducer.spark._commit import SinkCommit
from aioproducer.spark._coordinators import with_sink
from aioproducer.spark._options import SinkOptions
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.driver import Driver
from tests.spark.crashes.faulty_source import OPTION, Faults, Point
from tests.spark.crashes.query import Job
from tests.spark.crashes.topic import Topic

ROWS = 300
"""Of each batch."""


GATE = pytest.mark.parametrize("kafka", [pytest.param("4.4.0", marks=pytest.mark.gate), "3.9.1"], indirect=True)
"""A case on both brokers, and on the first in every run of CI."""


class TableRow(NamedTuple):
    """What a case came to, for the crash table at the end of the run."""

    case: str
    broker: str
    duplicates: int
    missing: int
    recovery_s: float
    """From the start of the driver that recovers, or from the fault if none was started, to the commit of the batch."""


@dataclass
class Case:
    """A stream into a topic of its own, exactly once.

    Attributes:
        kafka: running cluster.
        folder: for everything.
        name: of topic and sink.
        show: a row of the crash table.
        master: of Spark; None is local with the cores that `driver` is given.
    """

    kafka: KafkaCluster
    folder: Path
    name: str
    show: Callable[[TableRow], None]
    master: str | None = None
    conf: dict[str, str] | None = None
    options: dict[str, str] | None = None
    shuffles: bool = False
    exactly_once: bool = True
    topic: Topic = field(init=False)
    faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        self.topic = Topic(self.kafka.bootstrap_servers, self.name)
        self.topic.create()
        self._numbers = itertools.count()

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def sink_options(self, faults: Faults | None = None) -> dict[str, str]:
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": self.name,
            **({"exactlyOnce": "true", "sinkId": self.name, "transactionTimeout": "5m"} if self.exactly_once else {}),
            **(self.options or {}),
        }
        return given if faults is None else {**given, OPTION: faults.text()}

    def job(self, faults: Faults, cores: int) -> Job:
        return Job(
            master=self.master or f"local[{cores},4]",
            source="rate-micro-batch",
            source_options={"rowsPerBatch": str(ROWS), "startTimestamp": "0"},
            sink_options=self.sink_options(faults),
            checkpoint=self.checkpoint,
            shuffles=self.shuffles,
            conf=self.conf or {},
        )

    def driver(
        self, *points: Point, cores: int = 2, change: Callable[[Job], Job] = lambda job: job, master: str | None = None
    ) -> Driver:
        """Start a driver whose processes meet these points; use it in a `with`."""
        folder = self.folder / f"driver-{next(self._numbers)}"
        folder.mkdir(parents=True)
        self.faults = Faults(str(folder), points)
        job = self.job(self.faults, cores)
        if master is not None:
            job = replace(job, master=master)
        return Driver(change(job), folder, self.faults)

    def ask(self, question: Callable[[SinkCommit], object]) -> None:
        """Let the sink's commit do something, as `aioproducer txn` does."""
        with_sink(SinkOptions.parse(self.sink_options()), question)  # type: ignore[arg-type]

    def check(self, label: str, recovery_s: float, rows: int, *, missing: int = 0) -> None:
        """Add a row to the table: the first `rows` rows are in the topic once, but those that an error has named."""
        found = self.topic.read()
        first = [count for number, count in found.counts.items() if number < rows]
        row = TableRow(label, self.kafka.version, sum(first) - len(first), rows - len(first), recovery_s)
        self.show(row)
        assert (row.duplicates, row.missing) == (0, missing), row

    def check_end(self, rows: int, *, missing: int = 0) -> None:
        """Exactly the first `rows` rows are in the topic, each once, and no reader stands behind a transaction."""
        found = self.topic.read()
        state = (found.end <= rows, sum(found.counts.values()), found.open_partitions)
        assert state == (True, rows - missing, ()), (found.end, *state)

    def finish(self, label: str, driver: Driver, recovery_s: float, *, missing: int = 0) -> None:
        """Stop a driver between two batches; then `check` and `check_end`."""
        rows = (driver.halt() + 1) * ROWS
        self.check(label, recovery_s, rows, missing=missing)
        self.check_end(rows, missing=missing)


class MakeCase(Protocol):
    """Makes the case of a test: on a cluster, with attributes of `Case`."""

    def __call__(
        self,
        kafka: KafkaCluster,
        *,
        master: str | None = None,
        conf: dict[str, str] | None = None,
        options: dict[str, str] | None = None,
        shuffles: bool = False,
        exactly_once: bool = True,
    ) -> Case: ...
