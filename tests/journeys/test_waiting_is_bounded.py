"""Waiting records are bounded, and `send_nowait` does not wait."""

import asyncio
import re
import tracemalloc

import pytest

from aioproducer import (
    BufferFullError,
    BufferTimeoutError,
    MetadataNotReadyError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    RecordMetadata,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time
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
    async with (
        FakeCluster(1, topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, **SMALL, max_block_ms=5_000, max_waiting_records=5) as producer,
    ):
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


async def test_enqueue_waits_for_room_in_the_order_of_calls(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, **SMALL) as producer:  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        tasks = [
            asyncio.create_task(producer.enqueue("orders", b"%04d" % number + bytes(1_000), partition=0))
            for number in range(500)
        ]
        await asyncio.wait(tasks, timeout=0.05)
        waiting = sum(not task.done() for task in tasks)
        one_broker.faults.remove(stall)
        await asyncio.gather(*tasks)

    assert waiting > 200
    numbers = [int((value or b"")[:4]) for value in values(one_broker, "orders")]
    assert numbers == list(range(500))


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


async def test_all_callers_cancelled_leave_nothing(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, **SMALL) as producer:  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        tasks = [asyncio.create_task(producer.enqueue("orders", bytes(1_000))) for _ in range(1_000)]
        await asyncio.wait(tasks, timeout=0.05)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        waiting = producer.statistics()
        one_broker.faults.remove(stall)
        await producer.flush()
        accepted = sum(not task.cancelled() for task in tasks)

    assert (waiting.records_waiting, waiting.waiting_bytes) == (0, 0)
    assert len(values(one_broker, "orders")) == accepted


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
