"""Two drivers start at once under one sinkId: one goes on, always, and each row is in the topic once.

What Spark does on its driver and in its tasks is done here in threads, with the same parts and without its processes,
so that many starts are soon over: AIOPRODUCER_SPARK_STARTS is how many. `pytest -s` prints what ended each.
"""

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from aioproducer.errors import KafkaError
from aioproducer.spark._commit import SinkCommit, SupersededError, WrittenTask
from aioproducer.spark._coordinators import prepared, with_sink
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._task import TaskSender
from aioproducer.spark._write_choice import BatchAction, Preparation, SinkConflictError, WriteName, choose
from tests.kafka_releases import FAKE
from tests.spark.functions.conftest import Topics

STARTS = int(os.environ.get("AIOPRODUCER_SPARK_STARTS", "4"))
BATCHES = 3
TASKS = 2
ROWS = 10
"""Of a task."""
ATTEMPTS = 4
"""Of a task, as Spark has by default on a cluster."""

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(params=[FAKE, *(pytest.param(each, marks=pytest.mark.kafka) for each in ("4.4.0", "3.9.1"))])
def servers(request: pytest.FixtureRequest) -> str:
    name = "embedded" if request.param == FAKE else f"kafka_{request.param.replace('.', '')}"
    found: str = request.getfixturevalue(name).bootstrap_servers
    return found


@dataclass
class Query:
    """A stream with a checkpoint, in any number of drivers; its rows have its name."""

    name: str
    options: SinkOptions
    log: set[int] = field(default_factory=set)
    """Spark's own: the batches that it will not run again."""

    def drive(self, run: str) -> KafkaError | None:
        """Run all batches, as one driver does; return the error that ends it."""
        try:
            for batch in range(BATCHES):
                if batch not in self.log:
                    self.write(WriteName(f"stream {self.name}", run, batch, self.options.topic or ""))
                    self.log.add(batch)
        except KafkaError as error:
            return error
        return None

    def write(self, name: WriteName) -> None:
        preparation = prepared(self.options, is_running=True)
        assert preparation is not None
        tasks: list[WrittenTask] = []
        try:
            action, record = choose(preparation.last, name, sink_id=self.sink_id)
            for task in range(TASKS):
                entry = None if action is BatchAction.SKIP else self.try_task(preparation, name.batch or 0, task)
                tasks.append(WrittenTask(preparation, record, entry, is_skipped=action is BatchAction.SKIP))
            with_sink(self.options, lambda commit: commit.commit(tasks), is_patient=True)
        except KafkaError:
            with suppress(KafkaError):
                with_sink(self.options, lambda commit: commit.abort(tasks))
            raise

    def try_task(self, preparation: Preparation, batch: int, task: int) -> TaskEntry:
        """Send the rows of a task, whose transaction another driver may end: then once more."""
        for attempt in range(ATTEMPTS - 1):
            with suppress(KafkaError):
                return self.task(preparation, batch, task, attempt=attempt)
        return self.task(preparation, batch, task, attempt=ATTEMPTS - 1)

    def task(self, preparation: Preparation, batch: int, task: int, *, attempt: int) -> TaskEntry:
        data_id = SinkIds(self.sink_id).data_id(preparation.lane, task, attempt)
        first = (batch * TASKS + task) * ROWS
        values = pa.array([f"{self.name}{row}".encode() for row in range(first, first + ROWS)])
        columns = SinkColumns(frozenset({"value"}), has_seconds=False)
        rows = iter([pa.RecordBatch.from_arrays([values], names=["value"])])
        counts, transaction = TaskSender(self.options, columns).send_all(rows, task=task, transactional_id=data_id)
        assert transaction is not None
        return TaskEntry.of(transaction, partition=task, attempt=attempt, rows=counts.rows)

    @property
    def sink_id(self) -> str:
        assert self.options.sink_id is not None
        return self.options.sink_id

    @property
    def rows(self) -> list[str]:
        return sorted(f"{self.name}{row}" for row in range(BATCHES * TASKS * ROWS))


def at_once(*drives: Callable[[], KafkaError | None]) -> Sequence[KafkaError | None]:
    """Return what ended each, all begun at the same moment."""
    start, found = threading.Barrier(len(drives)), dict[int, KafkaError | None]()

    def run(number: int) -> None:
        start.wait()
        found[number] = drives[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(drives))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(*("goes on" if error is None else f"ended by {type(error).__name__}" for error in found.values()), sep=", ")
    return [found[number] for number in range(len(drives))]


def sinks(topics: Topics, prefix: str) -> list[SinkOptions]:
    """Return the options of a sink with a topic of its own, for each start."""
    names = [topics.create(f"{topics.own}-{prefix}{number}") for number in range(STARTS)]
    given = [{**topics.options(name), "exactlyOnce": "true", "sinkId": name, "kafka.linger.ms": "0"} for name in names]
    return [SinkOptions.parse(each) for each in given]


def test_one_of_two_drivers_of_a_query_goes_on(servers: str, topic: str) -> None:
    """Both have its checkpoint; a third run, after them, finds all that they have done."""
    topics = Topics(servers, topic)
    for options in sinks(topics, "d"):
        query = Query("a", options)
        ended = at_once(lambda: query.drive("1"), lambda: query.drive("2"))  # noqa: B023  # at once
        assert None in ended, ended
        assert all(isinstance(each, SupersededError | SinkConflictError) for each in ended if each is not None), ended
        assert query.drive("3") is None
        with_sink(options, SinkCommit.resolve)
        assert topics.values(options.topic or "") == query.rows


def test_one_of_two_queries_goes_on_and_the_other_is_refused(servers: str, topic: str) -> None:
    """Not a row of the other is seen."""
    topics = Topics(servers, topic)
    for number, options in enumerate(sinks(topics, "q")):
        queries = [Query("a", options), Query("b", options)]
        if number % 2:
            queries.reverse()
        ended = at_once(*(lambda query=each: query.drive("1") for each in queries))  # type: ignore[misc]
        assert sum(each is None for each in ended) == 1, ended
        with_sink(options, SinkCommit.resolve)
        winner = next(itertools.compress(queries, (each is None for each in ended)))
        assert topics.values(options.topic or "") == winner.rows
