"""A start that fails or is cancelled during the authentication leaves nothing behind."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from aioproducer import AuthenticationError, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.kafka


async def wrong() -> str:
    await asyncio.sleep(0)
    return "canary-wrong"


async def hangs() -> str:
    await asyncio.Event().wait()
    return "never"


async def tidies_up_slowly() -> str:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
    return "never"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("password", [wrong, hangs, tidies_up_slowly])
async def test_failed_start_leaves_no_task_and_no_thread(
    secured_kafka: KafkaCluster, mechanism: str, password: Callable[[], Awaitable[str]]
) -> None:
    options = secured_kafka.client_options("SASL_PLAINTEXT", mechanism) | {"sasl_password": password}
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    for _ in range(10):
        producer = Producer(**cast("ProducerOptions", options))
        with pytest.raises((AuthenticationError, TimeoutError)):
            async with asyncio.timeout(0.3):
                await producer.start()
        await producer.close()
        assert asyncio.all_tasks() == tasks
    assert {each for each in threading.enumerate() if "sasl" in each.name} <= threads
