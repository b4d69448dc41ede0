"""Records that wait for memory or metadata are bounded, wait in order, and leave no trace when callers give up."""

import asyncio
import contextlib
import re
import tracemalloc
from typing import Literal, Self

import pytest

from aioproducer import (
    BufferFullError,
    BufferTimeoutError,
    InvalidPartitionError,
    MetadataNotReadyError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    RecordMetadata,
    RecordTooLargeError,
    UndeliveredError,
)
from aioproducer.config.producer_config import option_kinds
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Fault, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_loop import in_virtual_time
from tests.produced import until_refused, values

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
SMALL = {"buffer_memory": 200_000, "batch_size": 10_000}


async def test_loop_of_sends_meets_the_bound_of_records(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, max_waiting_records=100) as producer:
        accepted, error = until_refused(lambda: producer.send("orders", b"v"), BufferFullError)
        await producer.flush()

        assert (accepted, error.outcome) == (100, Outcome.NOT_WRITTEN)
        assert re.search(r"max_waiting_records=100 .*await producer\.enqueue", str(error))
        assert len(values(one_broker, "orders")) == 100
        producer.send("orders", b"v")


async def test_loop_of_sends_meets_the_bound_of_bytes(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, buffer_memory=1_000_000) as producer:
        accepted, error = until_refused(lambda: producer.send("orders", bytes(10_000)), BufferFullError)
        await producer.flush()

    assert (accepted, "max_waiting_bytes=250000" in str(error)) == (24, True)


async def test_sends_to_a_stalled_cluster_cannot_fill_the_memory(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, **SMALL) as producer:
        await producer.partitions_for("orders")
        tracemalloc.start()
        accepted, _ = until_refused(lambda: producer.send("orders", bytes(1_000)), BufferFullError)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        one_broker.faults.remove(stall)
        await producer.flush()

    assert 150 < accepted < 260
    assert held < 1_000_000
    assert len(values(one_broker, "orders")) == accepted


@in_virtual_time
async def test_records_without_memory_exhaust_the_buffer() -> None:
    """Each refused record is counted once, at once or after max_block_ms; one that found room is not."""
    async with producing(**SMALL, max_block_ms=5_000, max_waiting_records=5) as (cluster, producer):
        stall = cluster.faults.stall(PRODUCE)
        await producer.partitions_for("orders")
        until_refused(lambda: producer.send_nowait("orders", bytes(5_000), partition=0), BufferFullError)
        assert producer.statistics().buffer_exhausted == 1
        waiting, _ = until_refused(lambda: producer.send("orders", bytes(5_000), partition=0), BufferFullError)
        assert (waiting, producer.statistics().buffer_exhausted) == (5, 2)
        with pytest.raises(BufferTimeoutError):
            await producer.enqueue("orders", bytes(5_000), partition=0)
        assert producer.statistics().buffer_exhausted == 2 + 5 + 1
        found_room = asyncio.create_task(producer.enqueue("orders", bytes(5_000), partition=0))
        await asyncio.sleep(1)
        cluster.faults.remove(stall)
        await found_room

        assert producer.statistics().buffer_exhausted == 8
        with pytest.raises(UndeliveredError, match="5 records"):
            await producer.flush()


@in_virtual_time
async def test_topic_that_stays_unknown_exhausts_no_buffer() -> None:
    """Neither records refused beside others that wait for metadata, nor expired ones, count."""
    async with producing(FakeCluster(1, auto_create_topics=False), max_waiting_records=1) as (_, producer):
        deliveries = [producer.send("nowhere", b"1")]
        with pytest.raises(BufferFullError):
            producer.send("nowhere", b"2")
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("nowhere", b"3")
        (error,) = await asyncio.gather(*deliveries, return_exceptions=True)

        assert isinstance(error, MetadataTimeoutError)
        assert producer.statistics().buffer_exhausted == 0


async def enqueue_for_ever(producer: Producer) -> None:
    while True:
        await producer.enqueue("orders", bytes(1_000))


@pytest.mark.slow
async def test_ten_thousand_awaiting_tasks_never_meet_the_bound(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, max_waiting_records=10, **SMALL) as producer:  # type: ignore[arg-type]

        async def send() -> RecordMetadata:
            return await producer.send("orders", bytes(100))

        results = await asyncio.gather(*[asyncio.create_task(send()) for _ in range(10_000)])

    assert len({(each.partition, each.offset) for each in results}) == 10_000


async def test_enqueue_without_room_in_time(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, max_block_ms=1_000, **SMALL) as producer:  # type: ignore[arg-type]
        with pytest.raises(BufferTimeoutError, match="max_block_ms=1000") as caught:
            await enqueue_for_ever(producer)
        accepted = producer.statistics().records_sent
        one_broker.faults.remove(stall)
        await producer.flush()

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert len(values(one_broker, "orders")) == accepted


@pytest.mark.timing
@pytest.mark.parametrize(
    "max_block_ms, named", [(60_000, "delivery_timeout_ms=400"), (400, "max_block_ms=400"), (300, "max_block_ms=300")]
)
async def test_error_names_the_option_that_has_ended_the_wait(
    one_broker: FakeCluster, max_block_ms: int, named: str
) -> None:
    """The record's own deadline comes before max_block_ms: raising that option would not help."""
    times = {"request_timeout_ms": 400, "linger_ms": 0, "delivery_timeout_ms": 400}
    async with Producer(one_broker.bootstrap_servers, max_block_ms=max_block_ms, **times) as producer:  # type: ignore[arg-type]
        one_broker.faults.stall(METADATA)
        with pytest.raises(MetadataTimeoutError, match=f"'orders' is still unknown after {named}: ") as caught:
            await producer.send("orders", b"v")

    assert (caught.value.attempts, caught.value.outcome) == (0, Outcome.NOT_WRITTEN)


async def test_enqueue_cancelled_while_waiting_writes_nothing(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, **SMALL) as producer:  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        fitting = 0
        while producer.statistics().records_waiting == 0:
            producer.send("orders", bytes(1_000), partition=0)
            fitting += 1
        first = asyncio.create_task(producer.enqueue("orders", b"cancelled", partition=0))
        second = asyncio.create_task(producer.send_and_wait("orders", b"stays", partition=0))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        before = producer.statistics()
        one_broker.faults.remove(stall)
        await second
        await producer.flush()
        after = producer.statistics()

    assert first.cancelled()
    assert before.records_waiting == 2
    assert (after.records_waiting, after.waiting_bytes) == (0, 0)
    assert after.buffer_available_bytes == after.buffer_total_bytes
    assert values(one_broker, "orders")[fitting:] == [b"stays"]


# `send_nowait` takes what can be appended at once, and says why it does not


async def test_send_nowait_before_the_topic_is_known(producer: Producer) -> None:
    with pytest.raises(MetadataNotReadyError, match="'orders'") as caught:
        producer.send_nowait("orders", b"v")
    await producer.partitions_for("orders")

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert (await producer.send_nowait("orders", b"v")).offset == 0


async def test_send_nowait_without_room(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, buffer_memory=100_000, batch_size=10_000) as small:
        await small.partitions_for("orders")
        accepted, error = until_refused(lambda: small.send_nowait("orders", bytes(1_000)), BufferFullError)
        one_broker.faults.remove(stall)
        await small.flush()

    assert error.outcome is Outcome.NOT_WRITTEN
    assert "buffer_memory=100000" in str(error)
    assert "enqueue" in str(error)
    assert len(values(one_broker, "orders")) == accepted


# A broker that answers nothing, and callers for whose records there is no room


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
    async with producing(buffer_memory=1_048_576) as (cluster, producer):
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
