"""Fixtures of the tests of aiokafka's interface."""

from collections.abc import AsyncIterator

import pytest

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster


@pytest.fixture
async def producer(one_broker: FakeCluster) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=one_broker.bootstrap_servers)
    await made.start()
    yield made
    await made.stop()
