"""Steps of a loop that its caller interrupts: the point at which each step waits, and the ways to interrupt it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import anyio
from aiokafka import AIOKafkaConsumer

from aioproducer import Producer
from aioproducer.integrations.aiokafka import ExactlyOnce
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.integrations.workers import PATIENCE_S, committed_offsets, consuming, copy, fill

TOTAL = 120
BATCH = 20
PART = 12  # of a batch: so many have come, the others have not
PRODUCER = "copier"  # the client id

ILLEGAL_GENERATION = 22
TRANSACTION_ABORTABLE = 120

Step = Coroutine[object, object, object]
Reached = Callable[[Step], Awaitable[bool]]  # whether a step has come to where it is to be interrupted

Way = Callable[[Step, Reached], Awaitable[bool]]
"""Interrupts a step; returns whether it was, for it may have come to its end before."""


@dataclass(frozen=True, slots=True)
class Worker:
    cluster: FakeCluster
    consumer: AIOKafkaConsumer
    producer: Producer
    batches: ExactlyOnce

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    async def has_read(self) -> int:
        return sum([await self.consumer.position(partition) for partition in self.consumer.assignment()])

    async def takes_a_batch(self) -> None:
        await copy(*await anext(self.batches))


Place = Callable[[Worker], AbstractAsyncContextManager[Reached]]
"""Brings a worker to the point at which its next step will wait; afterwards the step may continue."""


# Places


@asynccontextmanager
async def gathering(worker: Worker) -> AsyncIterator[Reached]:
    """A part of a batch is read."""
    await fill(worker.servers, "input", range(PART))

    async def reached(_: Step) -> bool:
        return bool(worker.consumer.assignment()) and await worker.has_read() == PART

    yield reached
    await fill(worker.servers, "input", range(PART, TOTAL))


@asynccontextmanager
async def gathering_what_is_read_ahead(worker: Worker) -> AsyncIterator[Reached]:
    """A batch is committed, and a part of the next one is read."""
    await fill(worker.servers, "input", range(BATCH))
    await worker.takes_a_batch()
    await fill(worker.servers, "input", range(BATCH, BATCH + PART))

    async def reached(_: Step) -> bool:
        return (
            await worker.has_read() == BATCH + PART and sum(await committed_offsets(worker.servers, "input")) == BATCH
        )

    yield reached
    await fill(worker.servers, "input", range(BATCH + PART, TOTAL))


def at_request(api: ApiKey, *errors: tuple[int, ApiKey]) -> Place:
    """A batch was copied, these errors were answered, and a request of the producer finds no answer."""

    @asynccontextmanager
    async def place(worker: Worker) -> AsyncIterator[Reached]:
        await fill(worker.servers, "input", range(TOTAL))
        await worker.takes_a_batch()
        for code, of_api in errors:
            worker.cluster.faults.error(code, Where(api=of_api))
        stall = worker.cluster.faults.stall(Where(api=api, client_id=PRODUCER))

        async def reached(_: Step) -> bool:
            return stall.hits > 0

        yield reached
        worker.cluster.faults.remove(stall)

    return place


@asynccontextmanager
async def committing_with_the_next_in_hand(worker: Worker) -> AsyncIterator[Reached]:
    """The end of a transaction is not answered; all of the next batch is read ahead."""
    async with at_request(ApiKey.END_TXN)(worker) as is_committing:

        async def reached(step: Step) -> bool:
            return await is_committing(step) and await worker.has_read() == 2 * BATCH

        yield reached


@asynccontextmanager
async def beginning(worker: Worker) -> AsyncIterator[Reached]:
    """A batch is committed, the next one read, and its transaction waits for another task's of the same producer."""
    await fill(worker.servers, "input", range(TOTAL))
    await worker.takes_a_batch()
    may_end = asyncio.Event()

    async def other_transaction() -> None:
        async with worker.producer.transaction():
            await may_end.wait()

    other = asyncio.create_task(other_transaction())

    async def reached(step: Step) -> bool:
        return "TransactionLock.take" in suspended_in(step)

    yield reached
    may_end.set()
    await other


@asynccontextmanager
async def pausing(worker: Worker) -> AsyncIterator[Reached]:
    """A batch is aborted, and the pause before the next attempt is not over."""
    await fill(worker.servers, "input", range(TOTAL))
    await worker.takes_a_batch()
    worker.cluster.faults.error(ILLEGAL_GENERATION, Where(api=ApiKey.TXN_OFFSET_COMMIT))

    async def reached(step: Step) -> bool:
        return "ExactlyOnce._pause" in suspended_in(step)

    yield reached


@asynccontextmanager
async def rebalancing_with_a_batch_in_hand(worker: Worker) -> AsyncIterator[Reached]:
    """Another member has joined, and the group has not assigned its partitions yet; a batch was copied."""
    await fill(worker.servers, "input", range(TOTAL))
    await worker.takes_a_batch()
    async with another_member(worker, lambda: True) as is_rebalancing:
        await until(is_rebalancing)

        async def reached(step: Step) -> bool:
            return "Intake.next_batch" in suspended_in(step)

        yield reached


@asynccontextmanager
async def rebalancing_while_gathering(worker: Worker) -> AsyncIterator[Reached]:
    """Another member joins when a part of a batch is read, and the group has not assigned partitions yet."""
    await fill(worker.servers, "input", range(PART))
    has_read_a_part: list[bool] = []
    async with another_member(worker, lambda: bool(has_read_a_part)) as is_rebalancing:

        async def reached(_: Step) -> bool:
            if not has_read_a_part and worker.consumer.assignment() and await worker.has_read() == PART:
                has_read_a_part.append(True)
            return is_rebalancing()

        yield reached
    await fill(worker.servers, "input", range(PART, TOTAL))


@asynccontextmanager
async def another_member(worker: Worker, may_join: Callable[[], bool]) -> AsyncIterator[Callable[[], bool]]:
    """Run another consumer of the group, which leaves at the end; yields whether a rebalance is in progress."""
    stall = worker.cluster.faults.stall(Where(api=ApiKey.SYNC_GROUP))

    async def join() -> None:
        await until(may_join)
        await others.enter_async_context(consuming(worker.servers, "input"))

    async with contextlib.AsyncExitStack() as others:
        joining = asyncio.create_task(join())
        yield lambda: stall.hits > 0
        worker.cluster.faults.remove(stall)
        await joining


PLACES: dict[str, Place] = {
    "gathering": gathering,
    "gathering what is read ahead": gathering_what_is_read_ahead,
    "sending offsets": at_request(ApiKey.TXN_OFFSET_COMMIT),
    "committing": committing_with_the_next_in_hand,
    "aborting": at_request(ApiKey.END_TXN, (ILLEGAL_GENERATION, ApiKey.TXN_OFFSET_COMMIT)),
    "aborting what the coordinator would not commit": at_request(
        ApiKey.OFFSET_FETCH, (TRANSACTION_ABORTABLE, ApiKey.END_TXN)
    ),
    "asking what is committed": at_request(ApiKey.OFFSET_FETCH, (ILLEGAL_GENERATION, ApiKey.TXN_OFFSET_COMMIT)),
    "pausing": pausing,
    "beginning": beginning,
    "rebalancing with a batch in hand": rebalancing_with_a_batch_in_hand,
    "rebalancing while gathering": rebalancing_while_gathering,
}


def suspended_in(step: Step) -> set[str]:
    """The functions that a coroutine waits in, from the outermost to the innermost."""
    names: set[str] = set()
    inner: object = step
    while isinstance(inner, Coroutine):
        names.add(inner.cr_code.co_qualname)  # type: ignore[attr-defined]  # of `async def`
        inner = inner.cr_await  # type: ignore[attr-defined]
    return names


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


# Ways


async def by_task_cancel(step: Step, reached: Reached) -> bool:
    task = asyncio.ensure_future(step)
    await _once(reached, step)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def by_asyncio_timeout(step: Step, reached: Reached) -> bool:
    try:
        async with asyncio.timeout(None) as limit:
            striking = asyncio.create_task(_once(reached, step))
            striking.add_done_callback(lambda _: limit.reschedule(asyncio.get_running_loop().time()))
            await step
    except TimeoutError:
        await striking
        return True
    return False


async def by_anyio_scope(step: Step, reached: Reached) -> bool:
    with anyio.CancelScope() as scope:
        striking = asyncio.create_task(_once(reached, step))
        striking.add_done_callback(lambda _: scope.cancel())
        await step
    await striking
    return scope.cancelled_caught


WAYS: dict[str, Way] = {
    "task.cancel": by_task_cancel,
    "asyncio.timeout": by_asyncio_timeout,
    "anyio.CancelScope": by_anyio_scope,
}


async def _once(reached: Reached, step: Step) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await reached(step):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
