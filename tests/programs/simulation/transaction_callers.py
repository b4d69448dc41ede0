"""Callers of a transactional producer: transactions of a few records, committed, aborted or cancelled, and offsets.

Offsets are of several partitions, awaited or not, and some are of a member that is gone. Calls that the producer
refuses in its state leave its state as it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from aioproducer import (
    IllegalStateError,
    KafkaError,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from aioproducer._producer.transaction import Transaction
from aioproducer.records import TopicPartition
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.transaction_checker import Place, TransactionEnd, TransactionOperation, member_of

if TYPE_CHECKING:
    from tests.programs.simulation.transactional_run import TransactionalRun

FATAL = (ProducerFencedError, IllegalStateError)
GIVEN_UP = 0.2  # share of the transactions that their callers abort
BLOCKS = 0.7  # share of `async with` blocks; the other transactions use begin and commit
IMPATIENT = 0.5  # share of the commits and aborts that are cancelled, and repeated
FICKLE = 0.1  # share of the cancelled commits that are followed by an abort

PREPARED = 0.3  # share of the transactions by hand that are prepared first

MOST_ASKED = 3
LOYAL = 0.8  # share of the callers with successors that keep the producer that they had, as another process does


class GivenUpError(Exception):
    """Error that a caller raises in its transaction so that it is aborted."""


class TransactionCaller:
    def __init__(  # noqa: PLR0917  # what it stands between
        self, run: "TransactionalRun", plan: Plan, number: int, history: History, *, is_calm: bool = False
    ) -> None:
        self._run = run
        self._plan = plan
        self._history = history
        self._is_calm = is_calm
        self._rng = Random(f"{plan.family.name}-{plan.seed}-caller-{number}")
        self._mine: Producer | None = None  # to go on with, also after others have started
        self._has_begun = False
        self._choices = Random(f"{plan.family.name}-{plan.seed}-whims-{number}")
        self._preparing = Random(f"{plan.family.name}-{plan.seed}-preparing-{number}")
        self._offsets = OffsetCaller(plan, self._choices, history)

    async def run(self, transactions: int) -> None:
        for _ in range(transactions):
            if self._plan.user_faults and self._rng.random() < self._plan.family.cancels:
                await self._with_cancellation()
            else:
                await self.transaction(self._run.begin_operation())
            if self._plan.pace_s and self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.expovariate(1 / self._plan.pace_s))

    async def _with_cancellation(self) -> None:
        """Send a transaction and cancel it at any moment."""
        task = asyncio.ensure_future(self.transaction(self._run.begin_operation(), is_block=True))
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.3)) * self._rng.random())
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def transaction(self, operation: TransactionOperation, *, is_block: bool = False) -> None:
        """Send one transaction, and keep its outcome. Only a block's transaction ends with its task."""
        producer, self._mine = self._mine or self._run.producer, None
        operation.producer = self._run.number_of(producer)
        operation.end = TransactionEnd.ABORTED  # until a commit is asked for
        self._has_begun = False
        try:
            is_block = is_block or self._rng.random() < BLOCKS
            await (self._as_a_block if is_block else self._by_hand)(producer, operation)
            if operation.end is TransactionEnd.UNKNOWN:
                operation.end = TransactionEnd.COMMITTED
        except GivenUpError:
            pass
        except KafkaError as error:
            self._note_error(operation, error)
            if isinstance(error, FATAL) or not (self._has_begun or isinstance(error, TransactionTimeoutError)):
                await self._run.replace(producer)
                producer = None
        finally:
            await self._offsets.end(operation)
            operation.ended_at = min(operation.ended_at, self._history.clock())
            self._history.note("caller", "%s", operation)
        if self._plan.family.successors and self._rng.random() < LOYAL:
            self._mine = producer

    def _note_error(self, operation: TransactionOperation, error: KafkaError) -> None:
        operation.error, operation.ended_at = f"{type(error).__name__}: {error}", self._history.clock()
        if self._history.secrecy is not None:
            self._history.secrecy.check_error(error)
        if isinstance(error, TransactionAbortableError):
            operation.end = TransactionEnd.ABORTED

    async def _as_a_block(self, producer: Producer, operation: TransactionOperation) -> None:
        async with producer.transaction() as txn:
            self._has_begun = True
            self._history.note("caller", "transaction %d begins", operation.number)
            await self._fill(txn, operation)
            self._think_again()
            operation.end = TransactionEnd.UNKNOWN

    async def _by_hand(self, producer: Producer, operation: TransactionOperation) -> None:
        """Begin, and end by calls that are given up and repeated."""
        await producer.begin_transaction(wait=True)
        self._has_begun = True
        self._history.note("caller", "transaction %d begins, by hand", operation.number)
        try:
            await self._fill(producer, operation)
            self._think_again()
            prepared = await self._prepared(producer, operation)
            operation.end = TransactionEnd.UNKNOWN
            if prepared is not None:
                await self._until_heard(partial(producer.complete_transaction, prepared))
            elif self._is_calm or self._choices.random() >= FICKLE:
                await self._until_heard(producer.commit_transaction)
            elif await self._change_of_mind(producer):
                operation.end = TransactionEnd.ABORTED
        except FATAL:
            raise
        except (GivenUpError, KafkaError):
            await self._until_heard(producer.abort_transaction)
            raise

    async def _prepared(self, producer: Producer, operation: TransactionOperation) -> PreparedTransaction | None:
        """Prepare some transactions; nothing is taken after it, and their end is asked for by name."""
        if not operation.records or self._preparing.random() >= PREPARED:
            return None
        prepared = await producer.prepare_transaction()
        self._history.note("caller", "transaction %d is prepared: %s", operation.number, prepared)
        if self._preparing.random() < 0.5:
            await asyncio.sleep(self._preparing.random())
        for refused in (producer.begin_transaction, partial(producer.send_offsets, {(TOPIC, 0): 1}, "late")):
            try:
                await refused()
            except (IllegalStateError, KafkaError):
                continue
            self._history.violated("PREPARED", f"{operation}: a call was not refused after it was prepared")
        return prepared

    async def _until_heard(self, end: Callable[[], Coroutine[object, object, None]]) -> None:
        """Ask for an end, give up, and ask again, from several tasks at once: they join the end under way."""
        asked = 0
        while asked < MOST_ASKED and self._rng.random() < IMPATIENT and not self._is_calm:
            asked += 1
            task = asyncio.ensure_future(end())
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.05, 0.5)) * self._rng.random())
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                return task.result()
        ends = (end() for _ in range(self._rng.randint(1, 2)))
        answers = await asyncio.gather(*ends, return_exceptions=True)
        # Once one task gets the end, it is over for the others; the schedule decides which is the first.
        told = next((each for each in answers if not isinstance(each, IllegalStateError)), answers[0])
        if isinstance(told, IllegalStateError) and asked:
            self._history.violated("JOINED_END", f"an end that was asked for {asked + 1} times is not joined: {told}")
        if isinstance(told, BaseException):
            raise told
        return None

    async def _change_of_mind(self, producer: Producer) -> bool:
        """Cancel a commit and ask to abort, which is refused once the commit was sent; return whether it succeeded."""
        commit = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(self._choices.choice((0.0, 0.001, 0.05)) * self._choices.random())
        commit.cancel()
        await asyncio.wait([commit])
        if not commit.cancelled():
            commit.result()
            return False
        try:
            await producer.abort_transaction()
        except IllegalStateError:
            await self._until_heard(producer.commit_transaction)
            return False
        return True

    def _think_again(self) -> None:
        if not self._is_calm and self._rng.random() < GIVEN_UP:
            raise GivenUpError

    async def _fill(self, txn: Transaction | Producer, operation: TransactionOperation) -> None:
        for number in range(self._rng.randint(0, 8) if not self._is_calm else 2):
            partition = self._rng.randrange(self._plan.partitions)
            value = Place(operation.number, number).payload(
                b"x" * self._rng.randint(0, self._plan.family.value_size[1])
            )
            match self._rng.randrange(3):
                case 0:
                    txn.send(TOPIC, value, partition=partition)
                    operation.records[number] = partition
                case 1:
                    await txn.enqueue(TOPIC, value, partition=partition)
                    operation.records[number] = partition
                case _:
                    operation.records[number] = partition
                    await txn.send_and_wait(TOPIC, value, partition=partition)
            if self._rng.random() < 0.1:
                await asyncio.sleep(self._rng.random() * 0.05)
            if not self._is_calm and self._rng.random() < self._plan.family.pauses:
                await asyncio.sleep(self._rng.random() * self._plan.number("request_timeout_ms") / 2000)
        if self._rng.random() < self._plan.family.sends_offsets:
            await self._offsets.send(txn, operation, is_calm=self._is_calm)
            if not self._is_calm and self._choices.random() < self._plan.family.pauses:  # a copy of others may come now
                await asyncio.sleep(self._choices.random() * self._plan.number("request_timeout_ms") / 1000)


LATER = "orders-later"
"""A topic of which brokers know nothing at first: the offsets of others are taken, and those of it are not yet."""

UNAWAITED = 0.25  # share of the calls that are not awaited before the commit: their offsets count all the same
STALE = 0.06  # share of the offsets that are sent for a member that the group does not have


class OffsetCaller:
    def __init__(self, plan: Plan, rng: Random, history: History) -> None:
        self._plan = plan
        self._rng = rng
        self._history = history
        self._under_way: asyncio.Future[None] | None = None

    async def send(self, txn: Transaction | Producer, operation: TransactionOperation, *, is_calm: bool) -> None:
        """Give the offsets of a transaction."""
        if not is_calm and self._rng.random() < STALE:
            await self._send_stale(txn, operation)
            return
        operation.offset_places = self._places(is_calm=is_calm)
        offsets = dict.fromkeys(operation.offset_places, (operation.number, operation.text_of_offsets))
        begun = asyncio.Event()

        async def give() -> None:
            begun.set()
            await txn.send_offsets(offsets, member_of(operation.group))

        sending = asyncio.ensure_future(give())
        if is_calm or self._rng.random() >= UNAWAITED:
            await sending
        else:
            self._under_way = sending
            await begun.wait()  # else a schedule of priorities may put the commit before the call
        operation.has_offset = True

    async def end(self, operation: TransactionOperation) -> None:
        sending, self._under_way = self._under_way, None
        if sending is None:
            return
        (error,) = await asyncio.gather(sending, return_exceptions=True)
        if error is not None and operation.end is TransactionEnd.COMMITTED:
            self._history.violated("OFFSETS", f"{operation}: committed, and its offsets were not: {error!r}")

    def _places(self, *, is_calm: bool) -> list[TopicPartition]:
        places = [TopicPartition(TOPIC, number) for number in range(self._plan.partitions)]
        chosen = self._rng.sample(places, self._rng.randint(1, len(places)))
        if not is_calm and self._rng.random() < 0.2:
            chosen.insert(self._rng.randint(0, len(chosen)), TopicPartition(LATER, 0))
        return chosen

    async def _send_stale(self, txn: Transaction | Producer, operation: TransactionOperation) -> None:
        """KIP-447: a consumer that has lost its partitions cannot commit for them."""
        operation.is_stale = True
        await txn.send_offsets({(TOPIC, 0): operation.number}, member_of(operation.group, is_stale=True))
        self._history.violated(
            "OFFSETS", f"{operation}: offsets of a generation that the group does not have were taken"
        )


async def check_misuse(producer: Producer, history: History) -> None:
    """Call what cannot be done, while no transaction is open, and while one is."""

    async def send() -> None:
        producer.send(TOPIC, b"")

    for call in (producer.commit_transaction, producer.abort_transaction, send):
        await _check_refused(call, history, "without a transaction")
    await producer.begin_transaction()
    await _check_refused(producer.begin_transaction, history, "in a transaction")
    await producer.abort_transaction()


async def _check_refused(call: Callable[[], Awaitable[object]], history: History, when: str) -> None:
    name = getattr(call, "__name__", "")
    try:
        await call()
    except IllegalStateError:
        return
    except KafkaError as error:
        history.violated("MISUSE", f"{name} {when} raised {error!r}")
    else:
        history.violated("MISUSE", f"{name} {when} was not refused")
