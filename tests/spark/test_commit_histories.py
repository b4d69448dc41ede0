"""The commit of a batch over a model of the coordinator: random crashes, zombies, other parallelism, lost answers."""

import os
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from aioproducer.errors import KafkaError
from aioproducer.spark._commit import (
    ForgottenTransactionsError,
    LostTransactionsError,
    SinkCommit,
    WrittenTask,
)
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._write_choice import BatchAction, Preparation, WriteName, choose
from tests.spark.coordinator_model import CoordinatorModel, ModelCluster, Row, finished, run, step

BATCHES = 4
ROWS = 4
"""Of a write."""
MAX_WRITES = 3
PARTITIONS = 3
QUERY = "stream q"
HISTORIES = int(os.environ.get("AIOPRODUCER_COMMIT_HISTORIES", "250"))
"""For each version, with zombies and without: 1,000 in all unless told otherwise."""
IDS = SinkIds("sink")


Driver = Coroutine[None, None, None]


@dataclass
class History:
    """One query over its restarts, by one seed: its function writes each batch to up to three outputs."""

    seed: int
    version: int
    has_zombies: bool
    random: Random = field(init=False)
    model: CoordinatorModel = field(init=False)
    writes: list[int] = field(init=False)
    """Of each batch; the function leaves out one with 0."""
    log: set[int] = field(default_factory=set)
    """Spark's own: the batches that it will not run again."""
    rows_of: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    """By producer id and epoch."""
    lost: set[Row] = field(default_factory=set)
    """Rows that an error has named as missing."""
    forgotten: set[Row] = field(default_factory=set)
    """Rows of which an error has said that it cannot be told."""
    runs: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.model = CoordinatorModel(self.random, self.version)
        self.writes = [self.random.randint(0, MAX_WRITES) for _ in range(BATCHES)]

    def commit_of_a_driver(self, impatience: float) -> SinkCommit:
        return SinkCommit(IDS, ModelCluster(self.model, impatience), PARTITIONS)

    async def drive(self, impatience: float) -> None:
        """Run batches as Spark does until all are in its log, or one fails."""
        self.runs += 1
        commit, run_id = self.commit_of_a_driver(impatience), f"run {self.runs}"
        while len(self.log) < BATCHES:
            batch = len(self.log)
            for number in range(self.writes[batch]):
                await self.write_with_retries(commit, WriteName(QUERY, run_id, batch, "t"), number)
            await step()
            self.log.add(batch)

    async def write_with_retries(self, commit: SinkCommit, name: WriteName, number: int) -> None:
        """Write as a function does that tries again what has failed; and lets the error end it some day."""
        while True:
            try:
                await self.write(commit, name, number)
            except LostTransactionsError as error:
                named = self.forgotten if isinstance(error, ForgottenTransactionsError) else self.lost
                for entry in error.entries:
                    named.update(self.rows_of[entry.producer_id, entry.epoch])
                raise
            except KafkaError:
                if self.random.random() < 0.5:
                    raise
            else:
                return

    async def write(self, commit: SinkCommit, name: WriteName, number: int) -> None:
        preparation = await commit.prepare()
        tasks: list[WrittenTask] = []
        try:
            action, record = choose(preparation.last, name, sink_id="sink")
            if action is BatchAction.SKIP:
                tasks.append(WrittenTask(preparation, record, None, is_skipped=True))
            else:
                for partition, rows in enumerate(self.layout(name.batch or 0, number)):
                    entry = await self.write_task(preparation, partition, rows)
                    tasks.append(WrittenTask(preparation, record, entry))
            await commit.commit(tasks)
        except KafkaError:
            with suppress(KafkaError):
                await commit.abort(tasks)
            raise

    def layout(self, batch: int, write: int) -> Iterator[list[Row]]:
        """Cut a write into tasks, other ones each time."""
        rows = rows_of_write(batch, write)
        while rows:
            count = self.random.randint(0, len(rows))
            yield rows[:count]
            rows = rows[count:]

    async def write_task(self, preparation: Preparation, partition: int, rows: list[Row]) -> TaskEntry | None:
        """Write in one attempt or several; some leave an open transaction behind."""
        if not rows:
            return None
        attempt = 0
        while True:
            await step()
            transaction = self.model.initialise(IDS.data_id(preparation.lane, partition, attempt))
            await step()
            try:
                self.model.add_rows(transaction, rows[: self.random.randint(0, len(rows))])
                if self.random.random() < 0.8:
                    transaction = self.model.initialise(transaction.transactional_id)
                    await step()
                    self.model.add_rows(transaction, rows)
                    _, producer_id, epoch, version = transaction
                    self.rows_of[producer_id, epoch] = rows
                    return TaskEntry(partition, attempt, producer_id, epoch, version, len(rows))
            except KafkaError:
                pass  # another driver uses the id: the attempt fails
            attempt += 1

    def live(self) -> None:
        """Let drivers crash, sleep and come back for a while, then let one finish the work in peace."""
        drivers = [self.drive(impatience=0.02)]
        for _ in range(self.random.randint(10, 600)):
            chance = self.random.random()
            if chance < 0.015:
                self.start_one_more(drivers)
            elif chance < 0.03:
                self.kill_one(drivers)
            elif chance < 0.12:
                self.disturb(chance)
            else:
                self.let_one_go_on(drivers)
        close_all(drivers)
        self.finish()

    def start_one_more(self, drivers: list[Driver]) -> None:
        if not self.has_zombies:
            close_all(drivers)
        drivers.append(self.drive(impatience=0.02))

    def kill_one(self, drivers: list[Driver]) -> None:
        if drivers:
            drivers.pop(self.random.randrange(len(drivers))).close()

    def disturb(self, chance: float) -> None:
        """Time a transaction out, forget an id, or let a request arrive that its client has given up."""
        names = list(self.model.identities)
        if chance < 0.035 and names:
            self.model.time_out(self.random.choice(names))
        elif chance < 0.037 and names:
            self.model.expire(self.random.choice(names))
        elif self.model.late:
            with suppress(KafkaError):
                self.model.late.pop(0)()

    def let_one_go_on(self, drivers: list[Driver]) -> None:
        if not drivers:
            return
        driver = self.random.choice(drivers)
        try:
            is_over = finished(driver)
        except KafkaError:
            is_over = True
        if is_over:
            drivers.remove(driver)

    def finish(self) -> None:
        """Run the rest of the batches, and start the query once more: it must leave nothing open."""
        for _ in range(2 * BATCHES * MAX_WRITES):
            try:
                run(self.drive(impatience=0))
            except LostTransactionsError:
                run(self.commit_of_a_driver(0).accept_loss())
            else:
                run(self.commit_of_a_driver(0).accept_loss())
                return
        pytest.fail("the query never ends")

    def expected(self) -> set[Row]:
        return {
            row
            for batch, writes in enumerate(self.writes)
            for write in range(writes)
            for row in rows_of_write(batch, write)
        }


def rows_of_write(batch: int, write: int) -> list[Row]:
    return [(batch, write * ROWS + number) for number in range(ROWS)]


def close_all(drivers: list[Driver]) -> None:
    """Kill the processes of drivers."""
    while drivers:
        drivers.pop().close()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("has_zombies", [False, True])
@pytest.mark.parametrize("first", range(0, HISTORIES, 125))
def test_each_row_is_visible_once_or_named_as_lost(first: int, version: int, *, has_zombies: bool) -> None:
    for seed in range(first, first + 125):
        history = History(seed, version, has_zombies)
        history.live()
        visible = history.model.visible
        doubled = {row for row in visible if visible.count(row) > 1}
        assert not doubled, f"seed {seed}: {doubled}"
        missing = history.expected() - set(visible)
        assert missing <= history.lost | history.forgotten, f"seed {seed}"
        assert history.lost <= missing, f"seed {seed}: called missing, and there"
        assert missing <= history.model.torn, (
            f"seed {seed}: nothing aborted these rows after the commit had looked at them"
        )
        assert not [each for each in history.model.ongoing("sink.") if not each.endswith("coord")], f"seed {seed}"
