"""Flush waits for what was accepted before it; failures that were never retrieved are raised once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import (
    BrokerError,
    MetadataTimeoutError,
    Producer,
    ProducerInterceptor,
    TopicAuthorizationError,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import background_tasks, producing
from tests.fakes.virtual_loop import in_virtual_time
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29
SOON_S = 10  # less than the tenth of `delivery_timeout_ms` after which a batch is closed, however long its linger


async def fail_all_with_a_flush(producer: Producer, cluster: FakeCluster, records: int) -> None:
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


async def test_flush_waits_for_waiting_records(producer: Producer, one_broker: FakeCluster) -> None:
    """Regression in aiokafka: it waited for the linger."""
    async with Producer(one_broker.bootstrap_servers, linger_ms=60_000) as slow:
        slow.send("orders", b"in line")
        await asyncio.wait_for(slow.flush(), SOON_S)

    assert values(one_broker, "orders") == [b"in line"]
    await producer.flush()  # nothing to wait for


async def test_flush_has_its_time_and_can_be_called_again(producer: Producer, one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    producer.send("orders", b"v")

    with pytest.raises(TimeoutError, match=r"1 batch or waiting record not yet acknowledged after 0\.02 s"):
        await producer.flush(0.02)
    flushing = asyncio.create_task(producer.flush())
    await asyncio.sleep(0.01)
    flushing.cancel()
    await asyncio.wait([flushing])
    one_broker.faults.remove(stall)
    await producer.flush(1)

    assert (flushing.cancelled(), values(one_broker, "orders")) == (True, [b"v"])


async def test_flush_raises_unretrieved_failures_once(producer: Producer, one_broker: FakeCluster) -> None:
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
async def test_failure_whose_callback_raised_stays_unretrieved(
    one_broker: FakeCluster, interceptors: list[ProducerInterceptor]
) -> None:
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


# A flush waits for exactly the records accepted before it, however many come after


@in_virtual_time
async def test_later_records_do_not_stand_in_for_an_earlier_one() -> None:
    made = FakeCluster(2, topics={"orders": 2}, replication_factor=1)
    async with producing(made, linger_ms=0) as (cluster, producer):
        await asyncio.gather(*(producer.send("orders", b"0", partition=number) for number in (0, 1)))
        stall = cluster.faults.stall(Where(api=ApiKey.PRODUCE, node_id=cluster.leader_of("orders", 0)))
        early = producer.send("orders", b"early", partition=0)
        flush = asyncio.ensure_future(producer.flush())
        for _ in range(100):
            await producer.send("orders", b"late", partition=1)
        assert not flush.done()

        cluster.faults.remove(stall)
        await flush

        assert early.done()


@in_virtual_time
@pytest.mark.parametrize("records", [1, 200])
@pytest.mark.parametrize("on_delivery", [None, lambda *_: None], ids=["alone", "with on_delivery"])
async def test_done_callbacks_have_run_before_a_flush_ends(
    records: int, on_delivery: Callable[..., object] | None
) -> None:
    """Applications count in them."""
    done: list[object] = []
    async with producing(FakeCluster(1, topics={"orders": 1})) as (_, producer):
        for _ in range(records):
            delivery = await producer.enqueue("orders", b"v", on_delivery=on_delivery)
            delivery.add_done_callback(done.append)

        await producer.flush()

        assert len(done) == records


async def test_flush_with_nothing_to_do_ends_at_once() -> None:
    async with producing(FakeCluster(1)) as (_, producer):
        await asyncio.wait_for(asyncio.gather(producer.flush(), producer.flush(), producer.flush(0)), 1)


# A failure that was never retrieved is raised by the next flush or close


async def test_failure_after_an_abandoned_wait_is_unretrieved(cluster: FakeCluster) -> None:
    """The wait ended, and the failure was not reported since."""
    stalled = cluster.faults.stall(PRODUCE)
    async with Producer(cluster.bootstrap_servers) as producer:
        delivery = producer.send("orders", b"1", partition=0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await delivery
        cluster.faults.error(29, PRODUCE)
        cluster.faults.remove(stalled)

        with pytest.raises(UndeliveredError) as raised:
            await producer.flush()

    assert raised.value.count == 1


@in_virtual_time
async def test_failures_of_a_cancelled_close_stay_unretrieved() -> None:
    """Shutdown code may cancel every task, more than once; the next close raises the failures."""
    async with producing(FakeCluster(1, topics={"orders": 2}), linger_ms=0) as (cluster, producer):
        cluster.faults.error(29, PRODUCE)
        producer.send("orders", b"1", partition=0)
        await asyncio.sleep(0.1)
        cluster.faults.stall(PRODUCE)
        producer.send("orders", b"2", partition=1)
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.1)
        background_tasks()["close"].cancel()
        await asyncio.sleep(0.1)
        assert not closing.done()  # it goes on once
        background_tasks()["close"].cancel()
        await asyncio.wait([closing])

        with pytest.raises(UndeliveredError) as raised:
            await producer.close(0)

    assert closing.cancelled()
    assert raised.value.count == 2


async def test_interceptors_do_not_look_on_behalf_of_the_user(cluster: FakeCluster) -> None:
    cluster.faults.error(29, PRODUCE)
    async with Producer(cluster.bootstrap_servers, interceptors=[ProducerInterceptor()]) as producer:
        producer.send("orders", b"1", partition=0)

        with pytest.raises(UndeliveredError):
            await producer.flush()


async def test_callback_of_the_user_is_a_look_with_interceptors_too(cluster: FakeCluster) -> None:
    cluster.faults.error(29, PRODUCE)
    errors: list[object] = []
    async with Producer(cluster.bootstrap_servers, interceptors=[ProducerInterceptor()]) as producer:
        producer.send("orders", b"1", partition=0, on_delivery=lambda _, error: errors.append(error))
        await producer.flush()

    assert len(errors) == 1


async def send_many(producer: Producer, partition: int) -> bool:
    """Whether the caller read the failure of its record."""
    result = await (await producer.send_many("wide", [b"x"], partition=partition))
    return result.failed == 1


async def send_many_typed(producer: Producer, partition: int) -> bool:
    result = await (await producer.topic("wide", value=str).send_many(["x"], partition=partition))
    return result.failed == 1


async def send(producer: Producer, partition: int) -> bool:
    try:
        await producer.send("wide", b"x", partition=partition)
    except BrokerError:
        return True
    return False


async def enqueue(producer: Producer, partition: int) -> bool:
    delivery = await producer.enqueue("wide", b"x", partition=partition)
    await asyncio.wait([delivery])
    return delivery.exception() is not None


async def look_late(producer: Producer, partition: int) -> bool:
    bulk = await producer.send_many("wide", [b"x", b"y"], partition=partition)
    delivery = producer.send("wide", b"z", partition=partition)
    await asyncio.sleep(0.5)
    return (await bulk).failed == 2 and delivery.exception() is not None


CALLERS = [send_many, send_many_typed, send, enqueue, look_late]


@pytest.mark.parametrize("callers", [101, 150, 300])
@pytest.mark.parametrize("call", CALLERS)
@in_virtual_time
async def test_failures_read_by_many_callers_are_not_raised(
    call: Callable[[Producer, int], Awaitable[bool]], callers: int
) -> None:
    async with producing(FakeCluster(1, topics={"wide": callers})) as (cluster, producer):
        cluster.faults.error(29, PRODUCE, times=None)
        seen = await asyncio.gather(*(call(producer, partition) for partition in range(callers)))

        await producer.flush()

    assert all(seen)


@pytest.mark.parametrize("callers", [3, 150])
@pytest.mark.parametrize("call", [send_many, send_many_typed, send, enqueue])
@pytest.mark.parametrize("ends", ["flush", "close"])
@in_virtual_time
async def test_flush_that_waits_beside_the_callers_raises_nothing(
    call: Callable[[Producer, int], Awaitable[bool]], callers: int, ends: str
) -> None:
    """Callers and flush wait for the same batches, and the last of them wakes both."""
    async with producing(FakeCluster(1, topics={"wide": callers})) as (cluster, producer):
        await producer.partitions_for("wide")
        cluster.faults.error(29, PRODUCE, times=None)
        calls = [asyncio.ensure_future(call(producer, partition)) for partition in range(callers)]
        await asyncio.sleep(0)

        await (producer.flush() if ends == "flush" else producer.close())

        assert all(await asyncio.gather(*calls))


@in_virtual_time
async def test_calls_that_raised_are_not_counted_by_close() -> None:
    async with producing(FakeCluster(1, auto_create_topics=False), max_block_ms=500) as (_, producer):

        async def call(number: int) -> bool:
            await asyncio.sleep(number / 10_000)
            try:
                await producer.enqueue(f"missing-{number}", b"x")
            except MetadataTimeoutError:
                return True
            return False

        raised = await asyncio.gather(*map(call, range(400)))

        await producer.close()

    assert all(raised)
