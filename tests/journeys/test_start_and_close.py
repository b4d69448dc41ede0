"""Starting, closing and dropping a producer: bounded, once for all callers, and nothing is left."""

import asyncio
import gc
import warnings
from typing import NamedTuple

import pytest

from aioproducer import (
    BrokerError,
    Delivery,
    IllegalStateError,
    KafkaError,
    Outcome,
    Producer,
    ProducerClosedError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import background_tasks, left_behind, producing
from tests.fakes.virtual_loop import in_virtual_time, now
from tests.fakes.wrong_servers import dead_port, server_that_says
from tests.produced import produce_requests, values

PRODUCE = Where(api=ApiKey.PRODUCE)
METADATA = Where(api=ApiKey.METADATA)
FORBIDDEN = 29


def collect() -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    return [str(each.message) for each in caught]


# Start


async def test_start_twice_makes_one_sender(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    first, second = await asyncio.gather(producer.start(), producer.start())
    third = await producer.start()

    names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer-sender")]
    assert len(names) == 1
    assert first is second is third is producer
    await producer.close()
    assert await left_behind(one_broker) == (0, {})


async def test_constructed_anywhere_started_here(one_broker: FakeCluster) -> None:
    producer = await asyncio.to_thread(Producer, one_broker.bootstrap_servers)

    async with producer:
        await producer.send("orders", b"v")


async def test_start_that_fails_cleans_everything() -> None:
    async with dead_port() as address:
        with pytest.raises(TimeoutError):
            await Producer(address, max_block_ms=60).start()
    async with server_that_says(b"") as silent:
        with pytest.raises(TimeoutError):
            await Producer(silent, max_block_ms=60).start()
        with pytest.raises(TimeoutError):
            async with Producer(silent, max_block_ms=60):
                pytest.fail("the body must not run")

    assert background_tasks() == {}
    assert collect() == []


async def test_start_cancelled_cleans_everything(one_broker: FakeCluster) -> None:
    one_broker.faults.stall(METADATA)
    producer = Producer(one_broker.bootstrap_servers)
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(0.02)
    starting.cancel()
    await asyncio.wait([starting])

    assert starting.cancelled()
    assert await left_behind(one_broker) == (0, {})
    with pytest.raises(ProducerClosedError):
        await producer.start()
    with pytest.raises(ProducerClosedError, match="is closed"):
        producer.send("orders", b"v")
    assert collect() == []


async def test_start_shared_by_two_outlives_the_cancelling_of_one(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(METADATA)
    producer = Producer(one_broker.bootstrap_servers)
    first, second = asyncio.create_task(producer.start()), asyncio.create_task(producer.start())
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait([first])
    one_broker.faults.remove(stall)

    assert await second is producer
    await producer.send("orders", b"v")
    await producer.close()


async def test_closed_while_it_starts(one_broker: FakeCluster) -> None:
    one_broker.faults.stall(METADATA)
    producer = Producer(one_broker.bootstrap_servers)
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(0.01)
    await producer.close()

    with pytest.raises(ProducerClosedError, match="while it started"):
        await starting
    assert await left_behind(one_broker) == (0, {})


async def test_closed_in_the_turn_that_starts_it(one_broker: FakeCluster) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    starting = asyncio.create_task(producer.start())
    closing = asyncio.create_task(producer.close())
    results = await asyncio.gather(starting, closing, return_exceptions=True)

    assert (type(results[0]), results[1]) == (ProducerClosedError, None)
    assert await left_behind(one_broker) == (0, {})


@pytest.mark.parametrize("kind", ["sender", "metadata", "supervisor"])
async def test_background_task_that_dies_while_it_starts(one_broker: FakeCluster, kind: str) -> None:
    one_broker.faults.stall(METADATA)
    starting = asyncio.create_task(Producer(one_broker.bootstrap_servers).start())
    await asyncio.sleep(0.02)
    background_tasks()[kind].cancel()

    with pytest.raises(KafkaError, match=f"{kind} task was cancelled"):
        await asyncio.wait_for(starting, 30)
    assert await left_behind(one_broker) == (0, {})


# Close


async def test_close_again_does_nothing(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers).start()
    await producer.close()
    await producer.close()
    await producer.close(0)
    unstarted = Producer(one_broker.bootstrap_servers)
    await unstarted.close()
    await unstarted.close()

    assert "closed" in repr(producer)
    with pytest.raises(ProducerClosedError):
        await unstarted.start()
    for verb in (producer.send, producer.send_nowait, producer.enqueue):
        with pytest.raises(ProducerClosedError):
            verb("orders", b"v")
    for later in (producer.flush(), producer.partitions_for("orders")):
        with pytest.raises(ProducerClosedError):
            await later


async def test_joined_closes_raise_the_same(one_broker: FakeCluster) -> None:
    """All waiters get the undelivered records, later callers get none."""
    producer = await Producer(one_broker.bootstrap_servers).start()
    await producer.partitions_for("orders")
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    producer.send("orders", b"v")

    results = await asyncio.gather(producer.close(), producer.close(), return_exceptions=True)
    await producer.close()

    assert [type(result) for result in results] == [UndeliveredError] * 2
    assert results[0] is not results[1]


async def test_failures_of_an_unawaited_close_are_raised_next(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers).start()
    stall = one_broker.faults.stall(PRODUCE)
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    producer.send("orders", b"v")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.wait([closing])
    one_broker.faults.remove(stall)
    while "closed" not in repr(producer):  # noqa: ASYNC110  # awaiting it would defeat the test
        await asyncio.sleep(0.005)

    with pytest.raises(UndeliveredError):
        await producer.close()
    await producer.close()


async def test_close_while_others_send(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers).start()
    accepted: list[asyncio.Future[object]] = []

    async def keep_sending() -> None:
        while True:
            accepted.append(producer.send("orders", b"v"))  # type: ignore[arg-type]
            await asyncio.sleep(0)

    sending = [asyncio.create_task(keep_sending()) for _ in range(3)]
    await asyncio.sleep(0.02)
    await producer.close()
    results = await asyncio.wait_for(asyncio.gather(*sending, return_exceptions=True), 30)

    assert [type(result) for result in results] == [ProducerClosedError] * 3
    assert all(delivery.done() for delivery in accepted)
    assert len(values(one_broker, "orders")) == len(accepted) > 0


async def test_body_that_raises_wins_over_undelivered_records(one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE, times=None)

    async def body() -> None:
        async with Producer(one_broker.bootstrap_servers) as producer:
            producer.send("orders", b"v")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        await body()

    assert caught.value.__notes__[0].startswith("aioproducer: 1 record was not delivered")


async def test_body_that_is_cancelled_stays_cancelled(one_broker: FakeCluster) -> None:
    sent = asyncio.Event()

    async def body() -> None:
        async with Producer(one_broker.bootstrap_servers, linger_ms=60_000) as producer:
            producer.send("orders", b"v")
            sent.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(body())
    await sent.wait()
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert values(one_broker, "orders") == [b"v"]
    assert await left_behind(one_broker) == (0, {})


async def test_async_with_raises_undelivered_records(one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE, times=None)
    with pytest.raises(UndeliveredError):
        async with Producer(one_broker.bootstrap_servers) as producer:
            producer.send("orders", b"v")


async def test_dropped_unclosed_warns_and_lets_go(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers).start()
    await producer.send("orders", b"v")

    with pytest.warns(ResourceWarning, match=r"test_start_and_close\.py:\d+, was dropped without close\(\)"):
        del producer

    assert await left_behind(one_broker) == (0, {})


async def start_with(cluster: FakeCluster) -> Producer:
    await cluster.start()
    return await Producer(cluster.bootstrap_servers).start()


async def use_elsewhere(producer: Producer) -> None:
    with pytest.raises(KafkaError, match=r"as asyncio\.run does at its end .* make a new one"):
        producer.send("orders", b"v")
    with pytest.raises(IllegalStateError, match="event loop"):
        await producer.close()


def test_ended_loop_has_its_own_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a producer cannot be closed after its loop
        producer = asyncio.run(start_with(FakeCluster(1, topics={"orders": 1})))
        asyncio.run(use_elsewhere(producer))
        del producer
        gc.collect()


async def test_nothing_is_sent_by_starting_and_closing(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers):
        pass

    assert produce_requests(one_broker) == 0


# A start that ends well in the very turn of the loop in which it is given up


async def test_start_finished_during_cancellation_is_closed(one_broker: FakeCluster) -> None:
    """The body of `async with` never begins, so nothing would ever close the producer."""
    producer = Producer(one_broker.bootstrap_servers)
    entering = asyncio.create_task(producer.__aenter__())
    await asyncio.sleep(0)
    starting = producer._starting  # noqa: SLF001  # the one moment that matters
    assert starting is not None
    starting.add_done_callback(lambda _: entering.cancel())
    await asyncio.wait([entering])

    assert entering.cancelled()
    assert await left_behind(one_broker) == (0, {})


async def test_finished_start_is_left_to_its_other_callers(one_broker: FakeCluster) -> None:
    """One of two is cancelled in the turn in which both would get it; the other's start goes on."""
    producer = Producer(one_broker.bootstrap_servers)
    first, second = asyncio.create_task(producer.start()), asyncio.create_task(producer.start())
    await asyncio.sleep(0)
    starting = producer._starting  # noqa: SLF001  # as above
    assert starting is not None
    starting.add_done_callback(lambda _: second.cancel())

    assert await first is producer
    await asyncio.wait([second])
    assert second.cancelled()
    await producer.send("orders", b"v")
    await producer.close()


# A producer that is dropped without `close`, and the callers that still wait for their records


class LeftWaiting(NamedTuple):
    """Waiters at the time when the producer is dropped; none of them holds the producer."""

    on_wire: asyncio.Future[object]
    in_line: asyncio.Future[object]
    enqueue: asyncio.Future[Delivery]


async def drop_with_records(cluster: FakeCluster) -> LeftWaiting:
    producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
    await producer.send("orders", b"0")
    cluster.faults.stall(PRODUCE)
    on_wire, in_line = producer.send("orders", b"1"), producer.send("nowhere", b"2")
    left = LeftWaiting(
        asyncio.ensure_future(on_wire),
        asyncio.ensure_future(in_line),
        asyncio.ensure_future(producer.enqueue("no", b"")),
    )
    await asyncio.sleep(0.1)
    with pytest.warns(ResourceWarning, match="was dropped without close"):
        del producer
    return left


@in_virtual_time
async def test_all_waiters_fail_when_the_producer_is_dropped() -> None:
    async with FakeCluster(1, topics={"orders": 1}, auto_create_topics=False) as cluster:
        left = await drop_with_records(cluster)

        _, pending = await asyncio.wait(left, timeout=0.1)

        assert not pending
        errors = [each.exception() for each in left]
        assert [type(error) for error in errors] == [ProducerClosedError] * 3
        assert "dropped without close()" in str(errors[0])
        outcomes = [error.outcome for error in errors if isinstance(error, KafkaError)]
        assert outcomes == [Outcome.UNKNOWN, Outcome.NOT_WRITTEN, Outcome.NOT_WRITTEN]


@in_virtual_time
async def test_enqueue_that_is_awaited_after_the_drop_is_refused() -> None:
    """`enqueue` begins to wait when it is awaited, and the producer is gone by then."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        enqueue = producer.enqueue("nowhere", b"1")
        with pytest.warns(ResourceWarning, match="was dropped without close"):
            del producer
        await asyncio.sleep(0.1)

        with pytest.raises(ProducerClosedError, match="dropped without close"):
            await asyncio.wait_for(enqueue, 10)


@in_virtual_time
async def test_failed_producer_keeps_its_cause_when_dropped() -> None:
    with LogCapture() as log:
        async with FakeCluster(1, topics={"orders": 1}) as cluster:
            producer = await Producer(cluster.bootstrap_servers).start()
            cluster.faults.error(31, PRODUCE)  # CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(BrokerError):
                await producer.send("orders", b"0")
            with pytest.warns(ResourceWarning, match="was dropped without close"):
                del producer
            await asyncio.sleep(0.1)

    assert len(log.naming("producer_failed")) == 1


# Records on their way at the close: what can be delivered is, the rest fails with what is known


@in_virtual_time
async def test_close_delivers_what_was_accepted() -> None:
    """Records whose topic is unknown, and lingering ones, are delivered, too."""
    async with producing(FakeCluster(3), linger_ms=60_000) as (_, producer):
        deliveries = [producer.send(f"topic{number % 7}", b"x") for number in range(100)]

        await producer.close()

        assert all(delivery.exception() is None for delivery in deliveries)


@in_virtual_time
async def test_close_in_no_time_fails_the_rest_with_its_outcome() -> None:
    async with producing(linger_ms=0, max_in_flight_requests_per_connection=1) as (cluster, producer):
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
    async with producing() as (cluster, producer):
        cluster.faults.stall(PRODUCE)
        producer.send("orders", b"1", on_delivery=lambda *_: None)
        began = now()

        await producer.close(3)

        assert 3.0 <= now() - began < 3.1


@in_virtual_time
async def test_callers_that_wait_end_with_the_close() -> None:
    """KAFKA-9449: callers must not wait until max.block.ms."""
    async with producing(
        FakeCluster(1, topics={"orders": 1}, auto_create_topics=False), buffer_memory=65_536, batch_size=16_384
    ) as (cluster, producer):
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
    async with producing(linger_ms=0) as (cluster, producer):
        await producer.send("orders", b"0")
        cluster.faults.stall(PRODUCE)
        delivery = producer.send("orders", b"1")
        closes = [asyncio.create_task(producer.close(timeout)) for timeout in (30, 60)]
        await asyncio.sleep(1)
        began = now()
        closes.append(asyncio.create_task(producer.close(later)))
        await asyncio.wait(closes)

        assert now() - began < later + 0.5
        assert f"timeout {later} s" in str(delivery.exception())
        assert [type(close.exception()) for close in closes] == [UndeliveredError] * 3


@in_virtual_time
async def test_second_close_joins_the_first() -> None:
    async with producing() as (cluster, producer):
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
    async with producing(FakeCluster(3, topics={"orders": 3})) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"x", partition=number) for number in range(3)))
        await producer.close()
        await asyncio.sleep(0.01)
        gc.collect()

        assert cluster.connections == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
