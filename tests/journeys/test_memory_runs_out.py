"""The buffer is full: callers wait in order, give up without a trace, and go on when memory comes back."""

import asyncio
import contextlib
from typing import Literal, Self

import pytest

from aioproducer import (
    BufferFullError,
    BufferTimeoutError,
    InvalidPartitionError,
    Outcome,
    Producer,
    RecordTooLargeError,
    UndeliveredError,
)
from aioproducer.config.producer_config import option_kinds
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Fault, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)
VALUE = b"x" * 10_000
LEFT_TO_STALL_S = 0.5


class StalledBroker:
    """Yield a broker that answers no Produce yet, and a producer with room for about 26 large records."""

    def __init__(self, *, nodes: int = 1, **options: int) -> None:
        self.cluster = FakeCluster(nodes, topics={"orders": 1, "others": nodes})
        self._nodes = nodes
        sizes = {"buffer_memory": 262_144, "batch_size": 16_384, "max_waiting_bytes": 10_000_000}
        self._options = {**sizes, "linger_ms": 0, **options}

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        self.producer = Producer(self.cluster.bootstrap_servers, **self._options)  # type: ignore[arg-type]  # drawn
        await self.producer.start()
        await self.producer.send("orders", b"first")
        for partition in range(self._nodes):  # connect to every node
            await self.producer.send("others", b"first", partition=partition)
        self.stall: Fault = self.cluster.faults.stall(PRODUCE)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(UndeliveredError):
            await self.producer.close(0)
        await self.cluster.stop()

    def release(self) -> None:
        self.cluster.faults.remove(self.stall)

    async def fill(self) -> list["asyncio.Task[int]"]:
        """Start twice as many callers as there is room for; each returns its offset."""

        async def send(number: int) -> int:
            delivery = await self.producer.enqueue("orders", b"%d " % number + VALUE)
            return (await delivery).offset

        callers = [asyncio.ensure_future(send(number)) for number in range(60)]
        await asyncio.sleep(LEFT_TO_STALL_S)
        assert self.producer.statistics().records_waiting > 0
        return callers


@in_virtual_time
async def test_callers_are_served_first_come_first_served() -> None:
    async with StalledBroker() as broker:
        callers = await broker.fill()
        broker.release()

        assert await asyncio.gather(*callers) == list(range(1, 61))


@in_virtual_time
async def test_cancelled_callers_leave_no_trace() -> None:
    async with StalledBroker() as broker:
        callers = await broker.fill()
        cancelled = callers[40:50]
        for caller in cancelled:
            caller.cancel()
        broker.release()
        results = await asyncio.gather(*callers, return_exceptions=True)
        await broker.producer.flush()

        assert [type(each) for each in results[40:50]] == [asyncio.CancelledError] * 10
        assert len(broker.cluster.records("orders", 0)) == 51
        statistics = broker.producer.statistics()
        assert (statistics.records_waiting, statistics.buffer_available_bytes) == (0, statistics.buffer_total_bytes)


@in_virtual_time
async def test_caller_that_gives_up_makes_way_at_once() -> None:
    """A smaller record is served at once, although no response and no deadline is near."""
    async with StalledBroker(buffer_memory=69_000) as broker:
        for _ in range(4):
            broker.producer.send("orders", VALUE)
        large = asyncio.ensure_future(broker.producer.enqueue("orders", VALUE))
        await asyncio.sleep(LEFT_TO_STALL_S)
        small = asyncio.ensure_future(broker.producer.enqueue("others", b"x"))
        await asyncio.sleep(LEFT_TO_STALL_S)
        assert not small.done()

        large.cancel()
        await asyncio.sleep(0.01)

        assert small.done()


@in_virtual_time
async def test_all_callers_cancelled_at_once_while_metadata_changes() -> None:
    async with StalledBroker(nodes=2) as broker:
        callers = await broker.fill()
        for caller in callers:
            caller.cancel()
        await broker.producer.partitions_for("elsewhere")
        broker.release()
        await asyncio.wait(callers)

        assert (await broker.producer.send("others", b"x", partition=0)).offset == 1


@in_virtual_time
async def test_memory_returned_after_all_gave_up_is_free() -> None:
    """Regression: `send_nowait` was refused with all memory free, which was kept for a waiter that had left."""
    async with StalledBroker() as broker:
        callers = await broker.fill()
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        broker.release()
        await broker.producer.flush()
        statistics = broker.producer.statistics()
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes

        for _ in range(10):  # more than the reserve of the only node, all in one turn of the loop
            broker.producer.send_nowait("orders", VALUE)


@in_virtual_time
async def test_caller_without_room_in_time_gets_an_error() -> None:
    async with StalledBroker(max_block_ms=1_000) as broker:
        callers = await broker.fill()
        await asyncio.sleep(1)
        broker.release()
        results = await asyncio.gather(*callers, return_exceptions=True)

        late = [each for each in results if isinstance(each, BufferTimeoutError)]
        assert late
        assert {each.outcome for each in late} == {Outcome.NOT_WRITTEN}
        assert len(broker.cluster.records("orders", 0)) == 61 - len(late)


@in_virtual_time
async def test_unawaited_records_are_bounded() -> None:
    """The call past the bound raises; everything accepted goes through."""
    async with StalledBroker(max_waiting_records=10) as broker:
        accepted = 0
        with contextlib.suppress(BufferFullError):
            while accepted < 1000:
                broker.producer.send("orders", VALUE)
                accepted += 1
        assert 10 < accepted < 1000
        broker.release()
        await broker.producer.flush()

        assert len(broker.cluster.records("orders", 0)) == accepted + 1


@in_virtual_time
async def test_waiting_keyless_records_keep_their_order() -> None:
    """A topic of one partition has an order that users see."""
    async with StalledBroker() as broker:
        deliveries = [broker.producer.send("orders", b"%d " % number + VALUE) for number in range(60)]
        await asyncio.sleep(LEFT_TO_STALL_S)
        broker.release()
        while not deliveries[59].done():
            deliveries.append(broker.producer.send("orders", b"%d small" % len(deliveries)))
            await asyncio.sleep(0)
        await broker.producer.flush()

        numbers = [int((record.value or b"").split()[0]) for record in broker.cluster.records("orders", 0)[1:]]
        assert numbers == list(range(len(deliveries)))


@in_virtual_time
async def test_flush_waits_for_waiting_records() -> None:
    async with StalledBroker() as broker:
        for _ in range(60):
            broker.producer.send("orders", VALUE)
        flush = asyncio.ensure_future(broker.producer.flush())
        await asyncio.sleep(LEFT_TO_STALL_S)
        assert not flush.done()
        broker.release()
        await flush

        assert len(broker.cluster.records("orders", 0)) == 61


@in_virtual_time
async def test_node_that_answers_nothing_does_not_stop_the_others() -> None:
    async with FakeCluster(3, topics={"orders": 3}, replication_factor=1) as cluster:
        producer = Producer(cluster.bootstrap_servers, buffer_memory=262_144, batch_size=16_384, linger_ms=0)
        await producer.start()
        await asyncio.gather(*(producer.send("orders", b"x", partition=number) for number in range(3)))
        stuck, free = 0, 1
        cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=cluster.leader_of("orders", stuck)))
        callers = [asyncio.ensure_future(producer.enqueue("orders", VALUE, partition=stuck)) for _ in range(100)]
        await asyncio.sleep(LEFT_TO_STALL_S)

        for number in range(50):
            metadata = await asyncio.wait_for(producer.send("orders", VALUE, partition=free), 5)
            assert metadata.offset == number + 1

        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        with contextlib.suppress(UndeliveredError):
            await producer.close(0)


@in_virtual_time
async def test_moved_partitions_record_leaves_the_old_nodes_queue() -> None:
    async with FakeCluster(2, topics={"orders": 4}, replication_factor=2) as cluster:
        for partition in range(4):
            cluster.move_leader("orders", partition, 1 if partition < 3 else 2)
        producer = Producer(cluster.bootstrap_servers, buffer_memory=262_144, batch_size=16_384, linger_ms=0)
        await producer.start()
        await asyncio.gather(*(producer.send("orders", b"x", partition=number) for number in range(4)))
        cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=1))
        stuck = [asyncio.ensure_future(producer.enqueue("orders", VALUE, partition=0)) for _ in range(30)]
        await asyncio.sleep(LEFT_TO_STALL_S)
        moving = asyncio.ensure_future(producer.enqueue("orders", VALUE, partition=1))
        await asyncio.sleep(LEFT_TO_STALL_S)
        assert not moving.done()

        cluster.move_leader("orders", 1, 2)
        with contextlib.suppress(InvalidPartitionError):
            producer.send("orders", b"x", partition=99)  # has metadata asked for
        await asyncio.sleep(LEFT_TO_STALL_S)

        assert moving.done()
        for caller in stuck:
            caller.cancel()
        await asyncio.wait(stuck)
        with contextlib.suppress(UndeliveredError):
            await producer.close(0)


@in_virtual_time
async def test_keyless_and_partitioned_waiters_do_not_deadlock() -> None:
    """Every partition has waiters and no memory is lent: nothing else would wake them."""
    async with StalledBroker() as broker:
        values = [b"%d " % number + VALUE for number in range(60)]
        for number, value in enumerate(values):
            broker.producer.send("orders", value, partition=None if number % 2 else 0)
        await asyncio.sleep(LEFT_TO_STALL_S)
        assert broker.producer.statistics().records_waiting > 0
        broker.release()

        await broker.producer.flush()

        assert [record.value for record in broker.cluster.records("orders", 0)] == [b"first", *values]


@in_virtual_time
async def test_batches_are_large_in_a_small_buffer() -> None:
    """Also if only `buffer_memory` is small: batches do not take returned scraps."""
    async with producing(FakeCluster(1, topics={"orders": 1}), buffer_memory=1_048_576) as (cluster, producer):
        await producer.send("orders", b"first")
        cluster.faults.delay(0.005, PRODUCE, times=None)
        for _ in range(40_000):
            await producer.enqueue("orders", bytes(100))
        await producer.flush()
        statistics = producer.statistics()

    assert statistics.batch_bytes / statistics.batches_sent > 1_048_576 / 32


@pytest.mark.parametrize("nodes, compression", [(1, "none"), (3, "lz4")])
@in_virtual_time
async def test_smallest_buffer_is_large_enough(nodes: int, compression: Literal["none", "lz4"]) -> None:
    """The smallest accepted buffer works for many records, a retry, and the largest record."""
    smallest = option_kinds()["buffer_memory"].allowed.partition(" ")[0]
    async with producing(
        FakeCluster(nodes, topics={"orders": 3}), buffer_memory=int(smallest), compression_type=compression
    ) as (cluster, producer):
        cluster.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, PRODUCE)

        sent = [await producer.enqueue("orders", b"x" * 100, partition=n % 3) for n in range(30)]
        await asyncio.gather(*sent)
        await producer.send("orders", b"x" * (int(smallest) // 4 * 3 - 93))
        with pytest.raises(
            RecordTooLargeError, match=f"more than the {int(smallest) // 4 * 3} bytes that buffer_memory"
        ):
            await producer.send("orders", b"x" * int(smallest))

    assert sum(cluster.end_offset("orders", n) for n in range(3)) == 31
