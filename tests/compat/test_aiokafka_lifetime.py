"""Starting, stopping and dropping an `AIOKafkaProducer`."""

import asyncio
import gc

import pytest
from aiokafka import errors

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster
from tests.fakes.wrong_servers import dead_port
from tests.produced import values


async def test_closed_producer_takes_nothing(one_broker: FakeCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    batch = producer.create_batch()
    await producer.start()
    await producer.stop()
    await producer.stop()

    assert producer._closed  # noqa: SLF001  # programs look at it
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")
    with pytest.raises(errors.ProducerClosed):
        await producer.send_batch(batch, "orders", partition=0)


async def test_stop_delivers_what_was_queued(one_broker: FakeCluster) -> None:
    async def fail() -> None:
        async with AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers, linger_ms=60_000) as producer:
            await producer.send("orders", b"1", partition=0)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await fail()

    assert values(one_broker, "orders") == [b"1"]


async def test_brokers_that_are_down_are_a_connection_error() -> None:
    """Starting may be retried; until it succeeds, nothing is sent."""
    async with dead_port() as address:
        producer = AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=200)
        for _ in range(2):
            with pytest.raises(errors.KafkaConnectionError, match="127"):
                await producer.start()
        with pytest.raises(errors.IllegalStateError):
            await producer.send("orders", b"1")
        await producer.stop()


async def test_start_that_failed_may_succeed_later(one_broker: FakeCluster) -> None:
    """The loop around `start` that services have."""
    await one_broker.kill(1)
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers, request_timeout_ms=200)
    with pytest.raises(errors.KafkaConnectionError):
        await producer.start()
    await one_broker.restart(1)
    await producer.start()

    metadata = await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert metadata.offset == 0


async def test_dropped_unclosed_warns(one_broker: FakeCluster) -> None:
    """The warning begins like aiokafka's, and names the line of the program that created it."""

    async def drop() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
        await producer.start()

    with pytest.warns(
        ResourceWarning, match=r"^Unclosed AIOKafkaProducer '.*', made at .*test_aiokafka_lifetime\.py:\d+,"
    ):
        await drop()
    await asyncio.sleep(0.05)  # what it leaves closes itself


async def test_stopped_stays_stopped(one_broker: FakeCluster) -> None:
    """A restarted producer would be one that no `stop` closes."""
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    await producer.start()
    await producer.stop()

    for _ in range(2):
        with pytest.raises(errors.ProducerClosed):
            await producer.start()
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")


async def test_stop_from_elsewhere_closes_nothing_and_stays_possible(one_broker: FakeCluster) -> None:
    """On another event loop, stop and start are refused in aiokafka's class; then its own loop stops it."""
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    await producer.start()

    for call in (producer.stop, producer.start):
        with pytest.raises(errors.IllegalStateError, match="belongs to the event loop that started it"):
            await asyncio.to_thread(lambda call=call: asyncio.run(call()))
    await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer")] == []


async def test_stopped_while_it_starts_stays_stopped(one_broker: FakeCluster) -> None:
    """Its calls say that it is closed, not that it was never started."""
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(0)
    await producer.stop()

    with pytest.raises(errors.ProducerClosed):
        await starting
    with pytest.raises(errors.ProducerClosed):
        await producer.send("orders", b"1")


async def test_one_cancelled_start_leaves_the_other_its_producer(one_broker: FakeCluster) -> None:
    """Two tasks start it, one of them is cancelled: what the other has started is used, and stopped."""
    producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    cancelled, started = (asyncio.create_task(producer.start()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled, started])

    metadata = await producer.send_and_wait("orders", b"1", partition=0)
    await producer.stop()

    assert (cancelled.cancelled(), started.exception(), metadata.offset) == (True, None, 0)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer")] == []


async def test_dropped_after_a_second_start_names_its_maker(one_broker: FakeCluster) -> None:
    """The line that made it, not the one that started it again."""

    async def drop() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers, request_timeout_ms=200)
        await one_broker.kill(1)
        with pytest.raises(errors.KafkaConnectionError):
            await producer.start()
        await one_broker.restart(1)
        await producer.start()
        del producer
        gc.collect()  # the error of the first start held on to it

    made_at = f"{__file__}:{drop.__code__.co_firstlineno + 1},"
    with pytest.warns(ResourceWarning) as caught:
        await drop()
    await asyncio.sleep(0.05)  # what it leaves closes itself

    assert made_at in str(caught[0].message)
