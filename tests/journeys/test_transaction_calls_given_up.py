"""Calls about transactions that were given up, and what the next call of the same task finds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import BufferTimeoutError, ProducerClosedError, ProducerOptions, TransactionTimeoutError
from aioproducer._transactions.waiting import TransactionWaits
from tests.fakes.transactional_cluster import (
    END_TXN,
    INIT,
    PRODUCE,
    V1_RELEASE,
    V2_RELEASE,
    Release,
    cluster_of,
    committed,
    on_every_release,
    producer_of,
)
from tests.fakes.virtual_cluster import in_virtual_time

INVALID_PRODUCER_EPOCH = 47


async def in_vain(waits: TransactionWaits) -> None:
    """Wait, and be out of time."""
    with contextlib.suppress(TransactionTimeoutError):
        await waits.until(lambda: False, waits.deadline(), "it is not so")


async def for_a_while(waits: TransactionWaits) -> None:
    """Pause, and go on."""
    await waits.pause(0.5, waits.deadline())


async def cancelled(waits: TransactionWaits) -> None:
    """Wait, and be cancelled."""
    waiting = asyncio.ensure_future(waits.until(lambda: False, None, "it is not so"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("wait", [in_vain, for_a_while, cancelled])
@in_virtual_time
async def test_who_waits_no_more_is_not_kept(wait: Callable[[TransactionWaits], Awaitable[None]]) -> None:
    """While a commit has no answer nothing changes, and a caller may ask again and again."""
    waits = TransactionWaits(asyncio.get_running_loop(), max_block_s=1, explain=str)

    await wait(waits)

    assert repr(waits) == "<TransactionWaits 0>"


@in_virtual_time
async def test_who_waits_is_not_woken_by_what_others_wait_for() -> None:
    """A transaction changes several times before it is over, and each turn of the loop takes time."""
    waits = TransactionWaits(asyncio.get_running_loop(), max_block_s=1, explain=str)
    looks = [False] * 3 + [True] * 2

    caller = asyncio.ensure_future(waits.until(lambda: looks.pop(0), None, "it is not so"))
    await asyncio.sleep(0)
    assert len(looks) == 3  # at once, and before it fell asleep

    waits.tell()
    assert len(looks) == 2
    await asyncio.sleep(0)
    assert len(looks) == 2  # a caller who was woken would have looked as well

    waits.tell()
    await caller
    assert not looks


@in_virtual_time
async def test_begin_that_waits_for_late_copies_keeps_its_time() -> None:
    """The pause after an unanswered InitProducerId is half a minute."""
    loop = asyncio.get_running_loop()
    async with cluster_of(V1_RELEASE) as cluster, producer_of(cluster, max_block_ms=4_000) as producer:
        cluster.faults.drop_connection(END_TXN, after_append=True)
        cluster.faults.drop_connection(INIT, after_append=True)
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=0)
        await asyncio.sleep(2)
        began = loop.time()

        with pytest.raises(TransactionTimeoutError, match="may still arrive"):
            await asyncio.wait_for(producer.begin_transaction(), 60)

        assert loop.time() - began == pytest.approx(4, abs=0.1)


@in_virtual_time
async def test_begin_that_waits_for_the_last_transaction_ends_as_soon_as_the_producer_closes() -> None:
    """Not when closing has come to its end, which may take as long as it is given."""
    async with cluster_of(V2_RELEASE) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
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


@on_every_release
@in_virtual_time
async def test_task_whose_commit_timed_out_has_the_next_turn_once_it_has_ended(release: Release) -> None:
    """Who begins anew asks for its end no more; the others wait until nobody may."""
    async with cluster_of(release) as cluster, producer_of(cluster, max_block_ms=1_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        stalled = cluster.faults.stall(END_TXN)
        with pytest.raises(TransactionTimeoutError):
            await producer.commit_transaction()
        cluster.faults.remove(stalled)
        await asyncio.sleep(0.1)

        async with producer.transaction() as txn:
            await txn.send("t", b"w", partition=0)

        assert committed(cluster) == [b"v", b"w"]


@on_every_release
@in_virtual_time
async def test_record_whose_call_found_no_room_costs_no_transaction(release: Release) -> None:
    """The call has raised it, and nothing was taken: the rest is committed."""
    options: ProducerOptions = {"buffer_memory": 20_000, "batch_size": 10_000, "max_block_ms": 1_000}
    async with cluster_of(release) as cluster, producer_of(cluster, **options) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        stalled = cluster.faults.stall(PRODUCE)
        taken = 1
        with contextlib.suppress(BufferTimeoutError):
            for taken in range(1, 100):  # noqa: B007  # how many it were is what counts
                await producer.enqueue("t", bytes(1_000), partition=0)
        cluster.faults.remove(stalled)
        await producer.commit_transaction()

        assert 1 < len(committed(cluster)) == taken < 99
