"""What flush waits for, and which failures it raises."""

import asyncio

import pytest

from aioproducer import Producer, ProducerInterceptor, TopicAuthorizationError, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


async def fail_all_with_a_flush(producer: Producer, cluster: FakeCluster, records: int) -> None:
    """Let records fail unretrieved, each in its own batch."""
    fault = cluster.faults.error(FORBIDDEN, PRODUCE, times=None)
    for _ in range(records):
        delivery = producer.send("orders", b"v", partition=0)
        await asyncio.wait([asyncio.ensure_future(ended(delivery))])
    cluster.faults.remove(fault)


async def ended(delivery: "asyncio.Future[object]") -> None:
    while not delivery.done():  # noqa: ASYNC110  # every other way of waiting would be a look
        await asyncio.sleep(0.001)


async def test_flush_waits_for_exactly_what_was_accepted_before(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.send("orders", b"first", partition=0)
    sent = producer.send("orders", b"before", partition=0)
    stop = asyncio.Event()

    async def keep_sending() -> None:
        while not stop.is_set():
            producer.send("orders", b"later", partition=1)
            await asyncio.sleep(0)

    sending = asyncio.create_task(keep_sending())
    await asyncio.wait_for(producer.flush(), 30)
    stop.set()
    await sending

    assert sent.done()
    assert values(one_broker, "orders")[:2] == [b"first", b"before"]


async def test_flush_waits_for_records_in_line(producer: Producer, one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, linger_ms=60_000) as slow:
        slow.send("orders", b"in line")
        await asyncio.wait_for(slow.flush(), 30)

    assert values(one_broker, "orders") == [b"in line"]
    await producer.flush()  # nothing to wait for


async def test_flush_has_its_time_and_can_be_called_again(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    producer.send("orders", b"v")

    with pytest.raises(TimeoutError, match=r"\d+ batches and waiting records not yet acknowledged after 0\.02 s"):
        await producer.flush(0.02)
    flushing = asyncio.create_task(producer.flush())
    await asyncio.sleep(0.01)
    flushing.cancel()
    await asyncio.wait([flushing])
    one_broker.faults.remove(stall)
    await producer.flush(1)

    assert (flushing.cancelled(), values(one_broker, "orders")) == (True, [b"v"])


async def test_flush_raises_failures_nobody_looked_at_once(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    for _ in range(5):
        producer.send("orders", b"v", partition=0)

    with pytest.raises(UndeliveredError, match="5 records were not delivered") as caught:
        await producer.flush()

    (error,) = caught.value.exceptions
    assert isinstance(error, TopicAuthorizationError)
    assert (caught.value.count, error.topic, error.partition) == (5, "orders", 0)
    await producer.flush()


@pytest.mark.parametrize("interceptors", [[], [ProducerInterceptor()]], ids=["alone", "behind an interceptor"])
async def test_failure_whose_callback_raised_was_told_to_nobody(
    one_broker: FakeCluster, interceptors: list[ProducerInterceptor]
) -> None:
    """A callback with a wrong signature, or an async one, retrieves nothing; `flush` raises the failures."""
    one_broker.faults.error(FORBIDDEN, PRODUCE, times=None)

    async def mistaken(*_: object) -> None:
        raise AssertionError

    async with Producer(one_broker.bootstrap_servers, interceptors=interceptors) as producer:
        for callback in (lambda _: None, lambda *_: mistaken(), lambda *_: None):
            producer.send("orders", b"v", partition=0, on_delivery=callback)  # type: ignore[arg-type]  # the mistake

        with pytest.raises(UndeliveredError, match="2 records were not delivered"):
            await producer.flush()


async def test_failure_before_the_flush_is_kept_for_it(producer: Producer, one_broker: FakeCluster) -> None:
    await fail_all_with_a_flush(producer, one_broker, 2)

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()
    await producer.flush()


async def test_all_flushes_that_wait_raise(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.partitions_for("orders")
    stall = one_broker.faults.stall(PRODUCE)
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    producer.send("orders", b"v")
    flushes = [asyncio.create_task(producer.flush()) for _ in range(3)]
    await asyncio.sleep(0.01)
    one_broker.faults.remove(stall)

    results = await asyncio.gather(*flushes, return_exceptions=True)

    assert [type(result) for result in results] == [UndeliveredError] * 3
    await producer.flush()


async def test_failure_while_a_flush_gave_up_is_kept_for_the_next(producer: Producer, one_broker: FakeCluster) -> None:
    """The next flush raises it together with the failures of later records."""
    await producer.partitions_for("orders")
    stall = one_broker.faults.stall(PRODUCE)
    one_broker.faults.error(FORBIDDEN, PRODUCE, times=None)
    producer.send("orders", b"before", partition=0)
    flushing = asyncio.create_task(producer.flush())
    await asyncio.sleep(0)
    after = producer.send("orders", b"after", partition=1)
    await asyncio.sleep(0.01)
    flushing.cancel()
    await asyncio.wait([flushing])
    one_broker.faults.remove(stall)
    await ended(after)  # type: ignore[arg-type]

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()


@pytest.mark.parametrize("look", ["await", "gather", "exception", "callback", "wait_for"])
async def test_failures_that_were_looked_at_are_not_raised(
    producer: Producer, one_broker: FakeCluster, look: str
) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    delivery = producer.send("orders", b"v")
    match look:
        case "await":
            with pytest.raises(TopicAuthorizationError):
                await delivery
        case "gather":
            await asyncio.gather(delivery, return_exceptions=True)
        case "exception":
            await ended(delivery)  # type: ignore[arg-type]
            assert delivery.exception() is not None
        case "callback":
            delivery.add_done_callback(lambda done: done.exception())
        case "wait_for":
            with pytest.raises(TopicAuthorizationError):
                await asyncio.wait_for(delivery, 30)
    await producer.flush()

    assert producer.statistics().records_failed == 1


async def test_flush_that_waits_beside_a_gather_leaves_it_the_failures(
    producer: Producer, one_broker: FakeCluster
) -> None:
    await producer.partitions_for("orders")
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    gathering = asyncio.gather(*[producer.send("orders", b"v", partition=0) for _ in range(3)], return_exceptions=True)

    await producer.flush()

    assert [type(result) for result in await gathering] == [TopicAuthorizationError] * 3


async def test_one_of_a_batch_that_was_looked_at_is_not_counted(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    deliveries = [producer.send("orders", b"v", partition=0) for _ in range(5)]
    with pytest.raises(TopicAuthorizationError):
        await deliveries[2]

    with pytest.raises(UndeliveredError, match="4 records were not delivered"):
        await producer.flush()


async def test_undelivered_error_holds_a_hundred(producer: Producer, one_broker: FakeCluster) -> None:
    await producer.partitions_for("orders")
    await fail_all_with_a_flush(producer, one_broker, 120)

    with pytest.raises(UndeliveredError, match="120 records were not delivered") as caught:
        await producer.flush()

    assert (caught.value.count, len(caught.value.exceptions)) == (120, 100)


async def test_except_star_finds_the_kind(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    producer.send("orders", b"v")
    found: list[str] = []

    try:
        await producer.flush()
    except* TopicAuthorizationError as group:
        found += [str(error.topic) for error in group.exceptions if isinstance(error, TopicAuthorizationError)]

    assert found == ["orders"]


async def test_failures_enqueue_raised_are_not_raised_again(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, max_block_ms=500) as producer:
        with pytest.raises(TimeoutError):
            await producer.enqueue("nowhere", b"v")
        await producer.flush()
