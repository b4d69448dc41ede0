"""Closing with records on their way: what can be delivered is, the rest fails with what is known, nothing stays."""

import asyncio
import gc

import pytest

from aioproducer import Outcome, Producer, ProducerClosedError, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


@in_virtual_time
async def test_close_delivers_what_was_accepted() -> None:
    """Records whose topic is unknown, and lingering ones, are delivered, too."""
    async with FakeCluster(3) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=60_000).start()
        deliveries = [producer.send(f"topic{number % 7}", b"x") for number in range(100)]

        await producer.close()

        assert all(delivery.exception() is None for delivery in deliveries)


@in_virtual_time
async def test_close_in_no_time_fails_the_rest_with_its_outcome() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(
            cluster.bootstrap_servers, linger_ms=0, max_in_flight_requests_per_connection=1
        ).start()
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        sent = producer.send("orders", b"1")
        await asyncio.sleep(0.1)
        open_batch, in_line = producer.send("orders", b"2"), producer.send("unknown", b"3")

        with pytest.raises(UndeliveredError) as raised:
            await producer.close(0)

        assert raised.value.count == 3
        errors = [delivery.exception() for delivery in (sent, open_batch, in_line)]
        assert [type(error) for error in errors] == [ProducerClosedError] * 3
        outcomes = [error.outcome for error in errors if isinstance(error, ProducerClosedError)]
        assert outcomes == [Outcome.UNKNOWN, Outcome.NOT_WRITTEN, Outcome.NOT_WRITTEN]


@in_virtual_time
async def test_close_is_bounded_by_its_timeout() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        cluster.faults.stall(PRODUCE)
        producer.send("orders", b"1", on_delivery=lambda *_: None)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await producer.close(3)

        assert 3.0 <= loop.time() - began < 3.1


@in_virtual_time
async def test_callers_that_wait_end_with_the_close() -> None:
    """KAFKA-9449: callers must not wait until max.block.ms."""
    async with FakeCluster(1, topics={"orders": 1}, auto_create_topics=False) as cluster:
        producer = await Producer(cluster.bootstrap_servers, buffer_memory=65_536, batch_size=16_384).start()
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        callers = [asyncio.ensure_future(producer.enqueue("orders", b"x" * 10_000)) for _ in range(20)]
        callers.append(asyncio.ensure_future(producer.enqueue("nowhere", b"x")))
        asking = asyncio.ensure_future(producer.partitions_for("nowhere"))
        await asyncio.sleep(1)

        with pytest.raises(UndeliveredError):
            await producer.close(0)
        done, pending = await asyncio.wait([*callers, asking], timeout=0.1)

        assert not pending
        assert ProducerClosedError in {type(each.exception()) for each in done}


@pytest.mark.parametrize("later", [0, 2])
@in_virtual_time
async def test_later_close_shortens_the_time_of_the_first(later: float) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        delivery = producer.send("orders", b"1")
        loop = asyncio.get_running_loop()
        closes = [asyncio.create_task(producer.close(timeout)) for timeout in (30, 60)]
        await asyncio.sleep(1)
        began = loop.time()
        closes.append(asyncio.create_task(producer.close(later)))
        await asyncio.wait(closes)

        assert loop.time() - began < later + 0.5
        assert f"timeout {later} s" in str(delivery.exception())
        assert [type(close.exception()) for close in closes] == [UndeliveredError] * 3


@in_virtual_time
async def test_second_close_joins_the_first() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        stall = cluster.faults.stall(PRODUCE)
        delivery = producer.send("orders", b"1")
        first = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.1)
        assert not second.done()
        cluster.faults.remove(stall)

        await second

        assert delivery.result().offset == 0


@in_virtual_time
async def test_nothing_is_left_after_the_close() -> None:
    async with FakeCluster(3, topics={"orders": 3}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        await asyncio.gather(*(producer.send("orders", b"x", partition=number) for number in range(3)))
        await producer.close()
        await asyncio.sleep(0.01)
        gc.collect()

        assert cluster.connections == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_records_sent_while_closing_are_refused() -> None:
    """No record is accepted that would never complete (KAFKA-4235)."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        stall = cluster.faults.stall(PRODUCE)
        accepted = producer.send("orders", b"1")
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.1)

        with pytest.raises(ProducerClosedError):
            producer.send("orders", b"2")

        cluster.faults.remove(stall)
        await closing
        assert accepted.result().offset == 0
        assert len(cluster.records("orders", 0)) == 1


@in_virtual_time
async def test_bulk_call_that_the_close_overtakes_takes_no_more() -> None:
    rows = 2_000
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        await producer.partitions_for("orders")
        sending = asyncio.ensure_future(producer.send_many("orders", [bytes(10_000)] * rows))
        await asyncio.sleep(0)
        await producer.close()
        bulk = await sending

        assert {type(error) for error in bulk.refused.values()} == {ProducerClosedError}
        assert 0 < bulk.accepted == rows - len(bulk.refused) == cluster.end_offset("orders", 0)
