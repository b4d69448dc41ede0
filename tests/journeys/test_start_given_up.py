"""A start that ends well in the very turn of the loop in which it is given up."""

import asyncio

from aioproducer import Producer
from aioproducer.testing import FakeCluster
from tests.fakes.background_tasks import left_behind


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


async def test_start_that_is_ready_is_left_to_those_who_have_it(one_broker: FakeCluster) -> None:
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
