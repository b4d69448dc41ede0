"""A failure that was never retrieved is raised by the next flush or close."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import BrokerError, MetadataTimeoutError, Producer, ProducerInterceptor, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.background_tasks import background_tasks
from tests.fakes.virtual_cluster import in_virtual_time

MESSAGE_TOO_LARGE = 10
PRODUCE = Where(api=ApiKey.PRODUCE)


async def test_retrieving_one_failure_does_not_hide_another(cluster: FakeCluster) -> None:
    cluster.faults.error(29, PRODUCE)
    async with Producer(cluster.bootstrap_servers) as producer:
        looked_at = producer.send("orders", b"1", partition=0, on_delivery=lambda *_: None)
        producer.send("orders", b"2", partition=0)
        with pytest.raises(Exception, match="permission"):
            await looked_at

        with pytest.raises(UndeliveredError) as raised:
            await producer.flush()

    assert raised.value.count == 1


async def test_who_gave_up_before_the_failure_has_not_looked(cluster: FakeCluster) -> None:
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
async def test_close_whose_own_task_was_cancelled_has_told_nobody() -> None:
    """Shutdown code may cancel every task; the next close raises the failures."""
    async with FakeCluster(1, topics={"orders": 2}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        cluster.faults.error(29, PRODUCE)
        producer.send("orders", b"1", partition=0)
        await asyncio.sleep(0.1)
        cluster.faults.stall(PRODUCE)
        producer.send("orders", b"2", partition=1)
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.1)
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


async def test_awaited_failures_are_not_raised_again(cluster: FakeCluster) -> None:
    cluster.create_topic("wide", 300)
    async with Producer(cluster.bootstrap_servers, linger_ms=10_000) as producer:
        await producer.partitions_for("wide")
        deliveries = [producer.send("wide", b"x", partition=number) for number in range(300)]
        for delivery in deliveries:
            delivery.add_done_callback(lambda _: None)
        await producer.close(0)

    assert all(delivery.exception() is not None for delivery in deliveries)


async def test_callback_that_raised_has_told_nobody(cluster: FakeCluster) -> None:
    """A callback with a wrong signature raises: only flush is left to report the failure."""

    def told(*_: object) -> None:
        raise RuntimeError("a defect of the application")

    cluster.faults.error(29, PRODUCE)
    async with Producer(cluster.bootstrap_servers) as producer:
        producer.send("orders", b"1", partition=0, on_delivery=told)

        with pytest.raises(UndeliveredError) as raised:
            await producer.flush()

    assert raised.value.count == 1


async def test_callback_is_called_before_those_who_wait_go_on(cluster: FakeCluster) -> None:
    told: list[object] = []
    async with Producer(cluster.bootstrap_servers) as producer:
        delivery = producer.send("orders", b"1", partition=0, on_delivery=lambda *_: told.append("callback"))
        delivery.add_done_callback(lambda _: told.append("waiter"))
        await delivery

    assert told == ["callback", "waiter"]


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
    async with FakeCluster(1, topics={"wide": callers}) as cluster, Producer(cluster.bootstrap_servers) as producer:
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
    async with FakeCluster(1, topics={"wide": callers}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.partitions_for("wide")
        cluster.faults.error(29, PRODUCE, times=None)
        calls = [asyncio.ensure_future(call(producer, partition)) for partition in range(callers)]
        await asyncio.sleep(0)

        await (producer.flush() if ends == "flush" else producer.close())

        assert all(await asyncio.gather(*calls))


@in_virtual_time
async def test_calls_that_raised_are_not_counted_by_close() -> None:
    """Records for missing topics fail from one timer after another; their calls have raised all of them."""
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        producer = await Producer(cluster.bootstrap_servers, max_block_ms=500).start()

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
