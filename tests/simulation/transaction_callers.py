"""What callers do with a transactional producer: transactions of a few records, kept, given up or cancelled."""

import asyncio
from random import Random
from typing import Protocol

from aioproducer import (
    IllegalStateError,
    KafkaError,
    Producer,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from aioproducer.transaction import Transaction
from tests.simulation.faults import TOPIC
from tests.simulation.history import History
from tests.simulation.plan import Plan
from tests.simulation.transaction_stories import Place, TransactionEnd, TransactionStory

FATAL = (ProducerFencedError, IllegalStateError)
GIVEN_UP = 0.2
"""How many of the transactions their callers abort."""


class GivenUpError(Exception):
    """What a caller raises in its transaction so that it is aborted."""


class Lives(Protocol):
    """Whose producer callers use: it may be another one each time."""

    @property
    def producer(self) -> Producer:
        """The present one."""

    def begin_story(self) -> TransactionStory:
        """A new transaction."""

    async def replace(self, dead: Producer) -> None:
        """Put another producer in the place of one that cannot go on."""


class TransactionCaller:
    """One task that sends transactions.

    Args:
        lives: whose producer it uses.
        plan: what it does.
        number: of the caller.
        history: gets what it does.
        is_calm: it commits what it sends.
    """

    def __init__(self, lives: Lives, plan: Plan, number: int, history: History, *, is_calm: bool = False) -> None:  # noqa: PLR0917
        self._lives = lives
        self._plan = plan
        self._history = history
        self._is_calm = is_calm
        self._chance = Random(f"{plan.family.name}-{plan.seed}-caller-{number}")

    async def run(self, transactions: int) -> None:
        """Send so many transactions."""
        for _ in range(transactions):
            if self._plan.user_faults and self._chance.random() < self._plan.family.cancels:
                await self._impatiently()
            else:
                await self.transaction(self._lives.begin_story())
            if self._plan.pace_s and self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.expovariate(1 / self._plan.pace_s))

    async def _impatiently(self) -> None:
        """Send a transaction and cancel it at any moment."""
        task = asyncio.ensure_future(self.transaction(self._lives.begin_story()))
        await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.3)) * self._chance.random())
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def transaction(self, story: TransactionStory) -> None:
        """Send one transaction; whatever comes of it is in its story."""
        producer, has_begun = self._lives.producer, False
        story.end = TransactionEnd.ABORTED  # until somebody asks for a commit
        try:
            async with producer.transaction() as txn:
                has_begun = True
                self._history.note("caller", "transaction %d begins", story.number)
                await self._fill(txn, story)
                self._think_again()
                story.end = TransactionEnd.UNKNOWN
            story.end = TransactionEnd.COMMITTED
        except GivenUpError:
            pass
        except KafkaError as error:
            story.error = f"{type(error).__name__}: {error}"
            if self._history.secrecy is not None:
                self._history.secrecy.look_at_error(error)
            if isinstance(error, TransactionAbortableError):
                story.end = TransactionEnd.ABORTED
            if isinstance(error, FATAL) or not (has_begun or isinstance(error, TransactionTimeoutError)):
                await self._lives.replace(producer)
        finally:
            self._history.note("caller", "%s", story)

    def _think_again(self) -> None:
        """Give the transaction up, sometimes.

        Raises:
            GivenUpError: it is to be aborted.
        """
        if not self._is_calm and self._chance.random() < GIVEN_UP:
            raise GivenUpError

    async def _fill(self, txn: Transaction, story: TransactionStory) -> None:
        for number in range(self._chance.randint(0, 8) if not self._is_calm else 2):
            partition = self._chance.randrange(self._plan.partitions)
            value = Place(story.number, number).payload(b"x" * self._chance.randint(0, 150))
            match self._chance.randrange(3):
                case 0:
                    txn.send(TOPIC, value, partition=partition)
                    story.records[number] = partition
                case 1:
                    await txn.enqueue(TOPIC, value, partition=partition)
                    story.records[number] = partition
                case _:
                    story.records[number] = partition
                    await txn.send_and_wait(TOPIC, value, partition=partition)
            if self._chance.random() < 0.1:
                await asyncio.sleep(self._chance.random() * 0.05)
        if self._chance.random() < self._plan.family.sends_offsets:
            await txn.send_offsets({(TOPIC, 0): story.number}, story.group)
            story.has_offset = True
