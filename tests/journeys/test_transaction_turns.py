"""A producer has one transaction at a time: whose it is, and by what it is sent to."""

import asyncio

import pytest

from aioproducer import (
    IllegalStateError,
    NoTransactionError,
    Producer,
    ProducerClosedError,
    ProducerFencedError,
    ProducerOptions,
    Transaction,
    TransactionTimeoutError,
)
from aioproducer._transactions.waiting import TransactionLock
from aioproducer.testing import FakeCluster
from tests.fakes.transactional_cluster import (
    INIT,
    V2_RELEASE,
    cluster_of,
    committed,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_tasks_take_turns_first_come_first_served() -> None:
    """One transaction at a time, and none is torn apart."""
    order: list[int] = []

    async def work(producer: Producer, number: int) -> None:
        async with producer.transaction() as txn:
            order.append(number)
            await txn.send("t", b"%d" % number, partition=0)
            await asyncio.sleep(0.01)
            await txn.send("t", b"%d" % number, partition=0)

    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await asyncio.gather(*(work(producer, number) for number in range(8)))

        assert order == list(range(8))
        assert committed(cluster) == [b"%d" % (number // 2) for number in range(16)]


@in_virtual_time
async def test_tasks_that_begin_while_one_is_beginning_wait_for_their_turn() -> None:
    """As threads do that begin before the producer has its identity."""

    async def work(producer: Producer, number: int) -> None:
        await producer.begin_transaction(wait=True)
        await producer.send("t", b"%d" % number, partition=0)
        await producer.commit_transaction()

    async with cluster_of(V2_RELEASE) as cluster:
        producer = producer_of(cluster)
        await producer.start(wait=False)
        await asyncio.gather(*(work(producer, number) for number in range(4)))
        await producer.close()

        assert committed(cluster) == [b"%d" % number for number in range(4)]


@in_virtual_time
async def test_waiting_for_the_turn_ends_with_max_block_ms() -> None:
    """And the next one gets it when it is free."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, max_block_ms=500) as producer:
        is_open = asyncio.Event()

        async def hold() -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"held", partition=0)
                is_open.set()
                await asyncio.sleep(2)

        holding = asyncio.ensure_future(hold())
        await is_open.wait()
        with pytest.raises(TransactionTimeoutError, match="another task's transaction was still open"):
            async with producer.transaction():
                pytest.fail("it is not our turn")
        await holding
        async with producer.transaction() as txn:
            await txn.send("t", b"after", partition=0)

        assert committed(cluster) == [b"held", b"after"]


@in_virtual_time
async def test_cancelled_while_it_waits_for_its_turn_leaves_the_line() -> None:
    """The others go on in order."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:

        async def work(number: int) -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % number, partition=0)
                await asyncio.sleep(0.1)

        tasks = [asyncio.ensure_future(work(number)) for number in range(4)]
        await asyncio.sleep(0.05)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, True, False, False]
        assert committed(cluster) == [b"0", b"2", b"3"]


@pytest.mark.parametrize("wait", [False, True])
@in_virtual_time
async def test_begin_that_is_cancelled_gives_its_turn_back(wait: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """While it waits for its identity it has its turn: the next one would never begin."""
    async with cluster_of(V2_RELEASE) as cluster:
        stalled = cluster.faults.stall(INIT)
        producer = producer_of(cluster)
        await producer.start(wait=False)
        beginning = asyncio.create_task(producer.begin_transaction(wait=wait))
        await asyncio.sleep(1)
        beginning.cancel()
        await asyncio.wait((beginning,))
        cluster.faults.remove(stalled)

        async with asyncio.timeout(120):
            await producer.begin_transaction()
            await producer.abort_transaction()
        await producer.close()


async def _begun_and_never_ended(producer: Producer) -> list[asyncio.Future[None]]:
    """A transaction begun by hand, and two tasks that wait for their turn, by hand and in a block."""

    async def in_a_block() -> None:
        async with producer.transaction():
            raise AssertionError

    await producer.begin_transaction()
    waiting = [
        asyncio.ensure_future(producer.begin_transaction(wait=True)),
        asyncio.ensure_future(in_a_block()),
    ]
    await asyncio.sleep(0.01)
    return waiting


@in_virtual_time
async def test_turn_that_comes_as_its_task_gives_up_goes_on_to_the_next() -> None:
    """Else it would be lost, and everybody behind would wait in vain."""
    loop = asyncio.get_running_loop()
    turns = TransactionLock(loop, lambda _: True)
    held = await turns.take(loop.time() + 1)
    given_up = asyncio.ensure_future(turns.take(loop.time() + 1))
    following = asyncio.ensure_future(turns.take(loop.time() + 1))
    await asyncio.sleep(0)

    turns.give(held)
    given_up.cancel()

    assert (await following).transaction is None
    assert given_up.cancelled()


@in_virtual_time
async def test_those_in_line_are_told_when_the_producer_is_fenced() -> None:
    """The task whose turn it is cannot end what is fenced: nobody would ever have the next turn."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer, producer_of(cluster) as successor:
        del successor
        waiting = await _begun_and_never_ended(producer)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ProducerFencedError):  # noqa: PT012  # the abort is told if the commit is not
            try:
                await producer.send("t", b"late", partition=0)
            finally:
                await producer.abort_transaction()

        told = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(each) for each in told] == [ProducerFencedError] * 2
        assert asyncio.get_running_loop().time() - began < 10
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction(wait=True)


@in_virtual_time
async def test_those_in_line_are_told_when_the_producer_is_closed() -> None:
    """By whoever closes it, while the task whose turn it is does something else."""
    async with cluster_of(V2_RELEASE) as cluster:
        producer = await producer_of(cluster).start()
        waiting = await _begun_and_never_ended(producer)

        await producer.close()
        told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)

        assert [type(each) for each in told] == [ProducerClosedError] * 2


@in_virtual_time
async def test_nested_transaction_of_one_task_is_refused() -> None:
    """It would wait for itself."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        async with producer.transaction() as txn:
            with pytest.raises(IllegalStateError, match="this task has a transaction open already"):
                async with producer.transaction():
                    pytest.fail("nested")
            with pytest.raises(IllegalStateError, match="a transaction is open already"):
                await producer.begin_transaction()
            await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v"]


@in_virtual_time
async def test_handle_of_a_transaction_that_is_over_takes_nothing() -> None:
    """Else its records would slip into the next one."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:  # noqa: PLR1702  # blocks within blocks are what it is about
        handles: list[Transaction] = []
        for _ in range(2):
            async with producer.transaction() as txn:
                handles.append(txn)
                if len(handles) == 2:
                    for call in (handles[0].send, handles[0].enqueue, handles[0].send_and_wait):
                        with pytest.raises(IllegalStateError, match="this transaction is over"):
                            await call("t", b"late", partition=0)
                    with pytest.raises(IllegalStateError, match="this transaction is over"):
                        handles[0].send_nowait("t", b"late", partition=0)
                    with pytest.raises(IllegalStateError, match="this transaction is over"):
                        await handles[0].send_many("t", [b"late"], partition=0)
                    with pytest.raises(IllegalStateError, match="this transaction is over"):
                        await handles[0].send_offsets({("t", 0): 1}, "readers")
                await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v", b"v"]


@pytest.mark.parametrize("is_serialized", [False, True], ids=["of an unknown topic", "with a serializer"])
@in_virtual_time
async def test_what_enqueue_returned_is_of_no_use_after_the_transaction(is_serialized: bool) -> None:  # noqa: FBT001
    """A record that must wait, or meets the user's code, is looked at when it is awaited: in the next transaction."""
    options: ProducerOptions = {"value_serializer": bytes} if is_serialized else {}
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, **options) as producer:
        async with producer.transaction() as txn:
            late = [txn.enqueue("t", b"late", partition=0), txn.topic("t", value=bytes).enqueue(b"late", partition=0)]
            await txn.send("t", b"first", partition=1)
        async with producer.transaction() as txn:
            results = await asyncio.gather(*late, return_exceptions=True)
            await txn.send("t", b"second", partition=1)

        assert [type(result) for result in results] == [NoTransactionError] * 2
        assert committed(cluster) == [b"first", b"second"]


@in_virtual_time
async def test_bulk_that_outlives_its_transaction_is_cut_off_at_its_end() -> None:
    """What it gave before belongs to the transaction; the rest is refused, in whatever transaction is open then."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, batch_size=2000) as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"first", partition=0)
            sending = asyncio.ensure_future(txn.send_many("t", [b"x" * 1000] * 2000, partition=0))
            await asyncio.sleep(0)
        async with producer.transaction() as txn:
            await txn.send("t", b"second", partition=1)
            bulk = await sending
        result = await bulk

        assert 0 < len(result.errors) <= 2000
        assert len(committed(cluster)) == 2 + result.delivered


async def _open_blocks(cluster: FakeCluster) -> Producer:
    return await producer_of(cluster).start()


@in_virtual_time
async def test_producer_takes_nothing_of_its_own_inside_a_block() -> None:
    """It says by what to send."""
    async with cluster_of(V2_RELEASE) as cluster:  # noqa: PLR1702  # blocks within blocks are what it is about
        producer = await _open_blocks(cluster)
        async with producer.transaction() as txn:
            for call in (producer.send, producer.enqueue, producer.send_nowait, producer.send_and_wait):
                with pytest.raises(IllegalStateError, match=r"sent by its handle, txn\.send"):  # noqa: PT012  # it is the end of the block that raises
                    given = call("t", b"v", partition=0)
                    await given
            for verb in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(IllegalStateError, match="its end is the end of the block"):
                    await verb()
            with pytest.raises(IllegalStateError, match="offsets are sent by its handle"):
                await producer.send_offsets({("t", 0): 1}, "readers")
            await txn.send("t", b"v", partition=0)
        await producer.close()

        assert committed(cluster) == [b"v"]
