"""A caller that awaits each send in a loop gets one hint about `enqueue`; other callers get none."""

import asyncio

from aioproducer import Producer
from aioproducer._sender.await_hint import STREAK
from aioproducer.testing import FakeCluster
from tests.fakes.log_capture import LogCapture

EVENT = "awaited_one_by_one"


async def send_until_told(producer: Producer, log: LogCapture) -> None:
    """On a busy machine some sends look like pauses, and it takes longer."""
    for _ in range(40 * STREAK):
        await producer.send("orders", b"v")
        if log.naming(EVENT):
            return


async def test_loop_that_awaits_each_send_is_told_once(one_broker: FakeCluster) -> None:
    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers) as producer:
            await send_until_told(producer, log)
            for _ in range(STREAK):
                await producer.send("orders", b"v")

    assert len(log.naming(EVENT)) == 1
    assert "enqueue" in log.naming(EVENT)[0]


async def test_others_are_not_told(one_broker: FakeCluster) -> None:
    """Overlapping handlers, batches, few awaited sends, and sends with pauses get no hint."""
    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers) as producer:
            for _ in range(STREAK // 2 - 10):
                await producer.send("orders", b"v")
            await asyncio.sleep(0.01)
            for _ in range(STREAK // 2 - 10):
                await producer.send("orders", b"v")
            for _ in range(STREAK):
                await asyncio.gather(producer.send("orders", b"v"), producer.send("orders", b"v", partition=0))
            for _ in range(STREAK * 2):
                await producer.enqueue("orders", b"v")
            await producer.flush()

    assert log.naming(EVENT) == []
