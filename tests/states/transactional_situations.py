"""A producer with a transactional id in each of the places it can be in; on a virtual loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import MappingProxyType

from aioproducer import KafkaError, PreparedTransaction, Producer, Transaction
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_loop import ClusterLoop
from tests.states.situations import ACCEPTED_WHEN_RETURNED, CALLS, TOPIC, outcome_of

GROUP = "readers"
COORDINATOR = Where(api=ApiKey.FIND_COORDINATOR)
UNKNOWN = PreparedTransaction("nobody", 77, 0, 1)
END_TXN = Where(api=ApiKey.END_TXN)
PRODUCE = Where(api=ApiKey.PRODUCE)


async def one_block(producer: Producer) -> None:
    async with producer.transaction():
        pass


TRANSACTIONAL_CALLS: Mapping[str, Callable[[Producer], object]] = MappingProxyType(
    {
        "init_transactions()": lambda producer: producer.init_transactions(),
        "begin_transaction()": lambda producer: producer.begin_transaction(),
        "begin_transaction(wait=True)": lambda producer: producer.begin_transaction(wait=True),
        "commit_transaction()": lambda producer: producer.commit_transaction(),
        "abort_transaction()": lambda producer: producer.abort_transaction(),
        "prepare_transaction()": lambda producer: producer.prepare_transaction(),
        "complete_transaction": lambda producer: producer.complete_transaction(UNKNOWN),
        "send_offsets": lambda producer: producer.send_offsets({(TOPIC, 0): 1}, GROUP),
        "reject_commit": lambda producer: producer._reject_commit(KafkaError("elsewhere")),
        "async with transaction()": one_block,
        "committed_offsets": lambda producer: producer.committed_offsets(GROUP, [(TOPIC, 0)]),
        **CALLS,
    }
)

Situation = Callable[[FakeCluster, Producer], AbstractAsyncContextManager[object]]


def _look(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()


def _in_background(work: "asyncio._CoroutineLike[object]") -> "asyncio.Task[object]":
    task = asyncio.ensure_future(work)
    task.add_done_callback(_look)
    return task


@asynccontextmanager
async def without_an_id(cluster: FakeCluster, _: Producer) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap_servers) as producer:
        yield producer


@asynccontextmanager
async def new(_cluster: FakeCluster, _producer: Producer) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def initializing(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    cluster.faults.stall(COORDINATOR)
    await producer.start(wait=False)
    await asyncio.sleep(0.1)
    yield


@asynccontextmanager
async def ready(_cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    await producer.start()
    await producer.partitions_for(TOPIC)
    yield


@asynccontextmanager
async def in_transaction(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    """Between `begin_transaction` and its end."""
    async with ready(cluster, producer):
        await producer.begin_transaction()
        await producer.send(TOPIC, b"v")
        yield


@asynccontextmanager
async def in_own_block(cluster: FakeCluster, producer: Producer) -> AsyncIterator[Transaction]:
    """The caller is inside `async with producer.transaction()`."""
    async with ready(cluster, producer), producer.transaction() as txn:
        yield txn


@asynccontextmanager
async def in_anothers_block(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    async def stay() -> None:
        async with producer.transaction():
            await asyncio.sleep(1_000)

    async with ready(cluster, producer):
        staying = _in_background(stay())
        await asyncio.sleep(0.1)
        yield
        staying.cancel()
        await asyncio.wait([staying])


@asynccontextmanager
async def prepared(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    async with in_transaction(cluster, producer):
        await producer.prepare_transaction()
        yield


@asynccontextmanager
async def ending(
    end: Callable[[Producer], "asyncio._CoroutineLike[None]"], cluster: FakeCluster, producer: Producer
) -> AsyncIterator[None]:
    """The open transaction is ending, and EndTxn is not answered."""
    async with in_transaction(cluster, producer):
        cluster.faults.stall(END_TXN)
        _in_background(end(producer))
        await asyncio.sleep(0.1)
        yield


@asynccontextmanager
async def abortable(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    async with in_transaction(cluster, producer):
        cluster.faults.error(29, PRODUCE, times=1)
        with contextlib.suppress(KafkaError):
            await producer.send(TOPIC, b"refused")
        yield


@asynccontextmanager
async def fenced(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    """A newer producer has the id, and this one knows it."""
    async with in_transaction(cluster, producer):
        async with Producer(cluster.bootstrap_servers, transactional_id="billing-1"):
            pass
        with contextlib.suppress(KafkaError):
            await producer.commit_transaction()
        yield


@asynccontextmanager
async def closed(cluster: FakeCluster, producer: Producer) -> AsyncIterator[None]:
    async with ready(cluster, producer):
        await producer.close()
        yield


SITUATIONS: Mapping[str, Situation] = MappingProxyType(
    {
        "no id": without_an_id,
        "new": new,
        "initializing": initializing,
        "ready": ready,
        "in transaction": in_transaction,
        "in own block": in_own_block,
        "in another's block": in_anothers_block,
        "prepared": prepared,
        "committing": partial(ending, Producer.commit_transaction),
        "aborting": partial(ending, Producer.abort_transaction),
        "abortable": abortable,
        "fenced": fenced,
        "closing": partial(ending, Producer.close),
        "closed": closed,
    }
)


def made_in(situation: str, call: str) -> str:
    """Make a call there; what comes of it. What `send` returns is not awaited."""

    async def story() -> list[str]:
        found = list[str]()
        async with FakeCluster(1, topics={TOPIC: 1}) as cluster:
            producer = Producer(
                cluster.bootstrap_servers, transactional_id="billing-1", close_timeout_ms=60_000, max_block_ms=60_000
            )
            with contextlib.suppress(KafkaError):  # of the end of a block whose producer is closed
                async with SITUATIONS[situation](cluster, producer) as other:
                    asked = other if isinstance(other, Producer) else producer
                    is_accepted = call in ACCEPTED_WHEN_RETURNED
                    made = TRANSACTIONAL_CALLS[call]
                    found.append(await outcome_of(made, asked, is_accepted_when_returned=is_accepted))
            with contextlib.suppress(KafkaError):
                await producer.close(0)
        return found

    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        (found,) = runner.run(story())
    return found
