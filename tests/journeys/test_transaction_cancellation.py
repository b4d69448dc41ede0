"""Calls that are cancelled or time out, and tasks that wait for their turn."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import (
    BufferTimeoutError,
    IllegalStateError,
    NoTransactionError,
    Producer,
    ProducerClosedError,
    ProducerFencedError,
    ProducerOptions,
    Transaction,
    TransactionTimeoutError,
)
from aioproducer._transactions.waiting import TransactionLock, TransactionWaits
from tests.fakes.transaction_faces import Face, on_both_faces
from tests.fakes.transactional_cluster import (
    END_TXN,
    INIT,
    PRODUCE,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    asked,
    begin,
    cluster_of,
    committed,
    in_transaction,
    in_virtual_time_on_every_release,
    one_more,
    producer_of,
    transacting,
)
from tests.fakes.virtual_loop import in_virtual_time, now

INVALID_PRODUCER_EPOCH = 47


# Cancelled, timed out, and called again


@pytest.mark.parametrize("verb", ["commit_transaction", "abort_transaction"])
@pytest.mark.parametrize("waits", [0.0, 0.05, 0.5])
@in_virtual_time_on_every_release
async def test_cancelled_end_is_joined_by_the_same_call(release: Release, verb: str, waits: float) -> None:
    """Aiokafka's next call failed with an AssertionError."""
    async with in_transaction(release) as (cluster, producer):
        delayed = cluster.faults.delay(0.2, END_TXN, after_append=False)
        end: Callable[[], Awaitable[None]] = getattr(producer, verb)
        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0.1)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await asyncio.sleep(waits)

        await end()

        assert (delayed.hits, asked(cluster).count("END_TXN")) == (1, 1)
        assert committed(cluster) == ([b"v"] if verb == "commit_transaction" else [])
        with pytest.raises(IllegalStateError):
            await end()


@in_virtual_time_on_every_release
async def test_unsent_commit_is_dropped_by_abort(release: Release) -> None:
    """Records must not be committed after a successful abort."""
    async with transacting(release) as (cluster, producer):
        cluster.faults.throttle(1_000, PRODUCE)
        await begin(producer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.5)

        await producer.abort_transaction()

        assert (asked(cluster).count("END_TXN"), committed(cluster)) == (1, [])
        await one_more(producer, cluster)


@on_both_faces
@pytest.mark.parametrize("is_joined", [False, True], ids=["begun again", "joined"])
@in_virtual_time_on_every_release
async def test_begin_waits_for_a_cancelled_commit(release: Release, face: Face, *, is_joined: bool) -> None:
    """The commit is neither lost nor cut in two; another commit joins it."""
    async with cluster_of(release) as cluster, face.make(cluster) as producer:
        await producer.begin_transaction()
        await face.send(producer, b"first")
        cluster.faults.delay(0.2, END_TXN, after_append=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.commit_transaction(), 0.1)
        if is_joined:
            await producer.commit_transaction()
        await producer.begin_transaction()
        await face.send(producer, b"second")
        await producer.commit_transaction()

        assert committed(cluster) == [b"first", b"second"]


@in_virtual_time_on_every_release
async def test_commit_times_out_and_continues(release: Release) -> None:
    """The same call joins it after max_block_ms (KAFKA-13412)."""
    async with in_transaction(release, max_block_ms=300) as (cluster, producer):
        stalled = cluster.faults.stall(END_TXN)
        for _ in range(2):
            with pytest.raises(TransactionTimeoutError, match="not committed after max_block_ms=300"):
                await producer.commit_transaction()
        with pytest.raises(IllegalStateError, match=r"await commit_transaction\(\) again"):
            await producer.abort_transaction()
        cluster.faults.remove(stalled)

        await producer.commit_transaction()

        assert committed(cluster) == [b"v"]


@in_virtual_time_on_every_release
async def test_cancelled_block_aborts_only_itself(release: Release) -> None:
    async with transacting(release) as (cluster, producer):

        async def work(name: bytes, seconds: float) -> None:
            async with producer.transaction() as txn:
                await txn.send("t", name, partition=0)
                await asyncio.sleep(seconds)

        for name, seconds in ((b"in the body", 5), (b"in the commit", 0)):
            cluster.faults.delay(1.0, END_TXN, after_append=False)
            task = asyncio.ensure_future(work(name, seconds))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with producer.transaction() as txn:
            await txn.send("t", b"after", partition=0)

        assert committed(cluster) == [b"in the commit", b"after"]


@in_virtual_time_on_every_release
async def test_exception_of_the_body_outranks_the_aborts(release: Release) -> None:
    async with transacting(release, max_block_ms=200) as (cluster, producer):
        stalled = cluster.faults.stall(END_TXN)
        with pytest.raises(LookupError, match="the body's own") as caught:  # noqa: PT012  # it is the end of the block that raises
            async with producer.transaction() as txn:
                await txn.send("t", b"v", partition=0)
                raise LookupError("the body's own")

        assert "the transaction was not aborted" in "\n".join(caught.value.__notes__)
        cluster.faults.remove(stalled)
        await asyncio.sleep(1)
        async with producer.transaction() as txn:
            await txn.send("t", b"next", partition=0)
        assert committed(cluster) == [b"next"]


async def in_vain(waits: TransactionWaits) -> None:
    with contextlib.suppress(TransactionTimeoutError):
        await waits.until(lambda: False, waits.deadline(), "it is not so")


async def for_a_while(waits: TransactionWaits) -> None:
    await waits.pause(0.5, waits.deadline())


async def cancelled(waits: TransactionWaits) -> None:
    waiting = asyncio.ensure_future(waits.until(lambda: False, None, "it is not so"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("wait", [in_vain, for_a_while, cancelled])
@in_virtual_time
async def test_cancelled_waiter_is_forgotten(wait: Callable[[TransactionWaits], Awaitable[None]]) -> None:
    """A caller may try again and again while a commit has no response."""
    waits = TransactionWaits(asyncio.get_running_loop(), max_block_s=1, explain=str)

    await wait(waits)

    assert not waits._waiting  # noqa: SLF001  # or each call would keep a future


@in_virtual_time
async def test_waiter_wakes_only_for_its_condition() -> None:
    """A transaction changes several times before it ends, and each turn of the loop takes time."""
    waits = TransactionWaits(asyncio.get_running_loop(), max_block_s=1, explain=str)
    looks = [False] * 3 + [True] * 2

    caller = asyncio.ensure_future(waits.until(lambda: looks.pop(0), None, "it is not so"))
    await asyncio.sleep(0)
    assert len(looks) == 3  # at once, and before it fell asleep

    waits.notify()
    assert len(looks) == 2
    await asyncio.sleep(0)
    assert len(looks) == 2  # a caller who was woken would have looked as well

    waits.notify()
    await caller
    assert not looks


@in_virtual_time
async def test_begin_paused_for_strays_times_out() -> None:
    """The pause after an unanswered InitProducerId is half a minute."""
    async with transacting(V1_RELEASE, max_block_ms=4_000) as (cluster, producer):
        cluster.faults.drop_connection(END_TXN, after_append=True)
        cluster.faults.drop_connection(INIT, after_append=True)
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)
        await asyncio.sleep(2)
        began = now()

        with pytest.raises(TransactionTimeoutError, match="may still arrive"):
            await asyncio.wait_for(producer.begin_transaction(), 60)

        assert now() - began == pytest.approx(4, abs=0.1)


@in_virtual_time
async def test_begin_waiting_for_last_end_fails_at_close() -> None:
    """It fails when closing begins, not when it has ended."""
    async with in_transaction(V2_RELEASE) as (cluster, producer):
        cluster.faults.error(INVALID_PRODUCER_EPOCH, END_TXN)
        stalled = cluster.faults.stall(INIT)
        aborting = asyncio.create_task(producer.abort_transaction())
        await asyncio.sleep(1)
        beginning = asyncio.create_task(producer.begin_transaction())
        await asyncio.sleep(1)
        closing = asyncio.create_task(producer.close(20))
        await asyncio.sleep(1)

        assert (aborting.done(), closing.done()) == (False, False)
        assert isinstance(beginning.exception(), ProducerClosedError)
        cluster.faults.remove(stalled)
        await asyncio.wait((aborting, closing))


@in_virtual_time_on_every_release
async def test_task_with_timed_out_commit_begins_next(release: Release) -> None:
    """Its begin takes the lock after that commit has ended; other tasks wait in case it calls commit again."""
    async with in_transaction(release, max_block_ms=1_000) as (cluster, producer):
        stalled = cluster.faults.stall(END_TXN)
        with pytest.raises(TransactionTimeoutError):
            await producer.commit_transaction()
        cluster.faults.remove(stalled)
        await asyncio.sleep(0.1)

        async with producer.transaction() as txn:
            await txn.send("t", b"w", partition=0)

        assert committed(cluster) == [b"v", b"w"]


@in_virtual_time_on_every_release
async def test_record_without_room_fails_no_transaction(release: Release) -> None:
    """The call has raised the error and accepted nothing, so the rest is committed."""
    options: ProducerOptions = {"buffer_memory": 20_000, "batch_size": 10_000, "max_block_ms": 1_000}
    async with in_transaction(release, **options) as (cluster, producer):
        stalled = cluster.faults.stall(PRODUCE)
        taken = 1
        with contextlib.suppress(BufferTimeoutError):
            for taken in range(1, 100):  # noqa: B007  # how many it were is what counts
                await producer.enqueue("t", bytes(1_000), partition=0)
        cluster.faults.remove(stalled)
        await producer.commit_transaction()

        assert 1 < len(committed(cluster)) == taken < 99


@in_virtual_time
async def test_tasks_begin_in_order() -> None:
    order: list[int] = []

    async def work(producer: Producer, number: int) -> None:
        async with producer.transaction() as txn:
            order.append(number)
            await txn.send("t", b"%d" % number, partition=0)
            await asyncio.sleep(0.01)
            await txn.send("t", b"%d" % number, partition=0)

    async with transacting(V2_RELEASE) as (cluster, producer):
        await asyncio.gather(*(work(producer, number) for number in range(8)))

        assert order == list(range(8))
        assert committed(cluster) == [b"%d" % (number // 2) for number in range(16)]


@in_virtual_time
async def test_tasks_wait_while_another_begins() -> None:
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
async def test_wait_for_the_lock_times_out() -> None:
    async with transacting(V2_RELEASE, max_block_ms=500) as (cluster, producer):
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
async def test_cancelled_begin_leaves_the_queue() -> None:
    async with transacting(V2_RELEASE) as (cluster, producer):

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
async def test_cancelled_begin_releases_the_lock(*, wait: bool) -> None:
    """A task that waits for the identity already holds the lock."""
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
    async def in_a_block() -> None:
        async with producer.transaction():
            raise AssertionError

    await producer.begin_transaction()
    waiting = [asyncio.ensure_future(producer.begin_transaction(wait=True)), asyncio.ensure_future(in_a_block())]
    await asyncio.sleep(0.01)
    return waiting


@in_virtual_time
async def test_lock_given_to_a_cancelled_task_goes_on() -> None:
    """Otherwise it would be lost, and all tasks behind would wait forever."""
    loop = asyncio.get_running_loop()
    lock = TransactionLock(loop, lambda _: True)
    held = await lock.take(loop.time() + 1)
    given_up = asyncio.ensure_future(lock.take(loop.time() + 1))
    following = asyncio.ensure_future(lock.take(loop.time() + 1))
    await asyncio.sleep(0)

    lock.give(held)
    given_up.cancel()

    assert (await following).transaction is None
    assert given_up.cancelled()


@in_virtual_time
async def test_queued_begins_fail_when_fenced() -> None:
    """The holder of the lock cannot end a fenced transaction, so they would wait forever."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer, producer_of(cluster) as successor:
        del successor
        waiting = await _begun_and_never_ended(producer)
        began = now()
        with pytest.raises(ProducerFencedError):  # noqa: PT012  # the abort is told if the commit is not
            try:
                await producer.send("t", b"late", partition=0)
            finally:
                await producer.abort_transaction()

        told = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(each) for each in told] == [ProducerFencedError] * 2
        assert now() - began < 10
        with pytest.raises(ProducerFencedError):
            await producer.begin_transaction(wait=True)


@in_virtual_time
async def test_queued_begins_fail_at_close() -> None:
    """The holder of the lock may be doing something else."""
    async with transacting(V2_RELEASE) as (_, producer):
        waiting = await _begun_and_never_ended(producer)

        await producer.close()
        told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)

        assert [type(each) for each in told] == [ProducerClosedError] * 2


@in_virtual_time
async def test_nested_transaction_of_one_task_raises() -> None:
    """It would wait for itself."""
    async with transacting(V2_RELEASE) as (cluster, producer):  # noqa: PLR1702  # blocks within blocks are what it is about
        async with producer.transaction() as txn:
            with pytest.raises(IllegalStateError, match="this task has a transaction open already"):
                async with producer.transaction():
                    pytest.fail("nested")
            with pytest.raises(IllegalStateError, match="a transaction is open already"):
                await producer.begin_transaction()
            await txn.send("t", b"v", partition=0)

        assert committed(cluster) == [b"v"]


@in_virtual_time
async def test_handle_of_an_ended_transaction_raises() -> None:
    """Its records would otherwise become part of the next transaction."""
    async with transacting(V2_RELEASE) as (cluster, producer):  # noqa: PLR1702  # blocks within blocks are what it is about
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
async def test_enqueue_awaited_after_its_end_raises(*, is_serialized: bool) -> None:
    """A record that must wait, or has hooks, is checked when it is awaited, in the next transaction."""
    options: ProducerOptions = {"value_serializer": bytes} if is_serialized else {}
    async with transacting(V2_RELEASE, **options) as (cluster, producer):
        async with producer.transaction() as txn:
            late = [txn.enqueue("t", b"late", partition=0), txn.topic("t", value=bytes).enqueue(b"late", partition=0)]
            await txn.send("t", b"first", partition=1)
        async with producer.transaction() as txn:
            results = await asyncio.gather(*late, return_exceptions=True)
            await txn.send("t", b"second", partition=1)

        assert [type(result) for result in results] == [NoTransactionError] * 2
        assert committed(cluster) == [b"first", b"second"]


@in_virtual_time
async def test_bulk_is_cut_off_at_the_end() -> None:
    """Its earlier records belong to the transaction; the rest is refused, even by a later one."""
    async with transacting(V2_RELEASE, batch_size=2000) as (cluster, producer):
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


@in_virtual_time
async def test_producer_send_inside_a_block_raises() -> None:
    """The error names the handle to send by."""
    async with transacting(V2_RELEASE) as (cluster, producer):  # noqa: PLR1702  # blocks within blocks are what it is about
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

        assert committed(cluster) == [b"v"]
