"""A pytest fixture for code that sends to Kafka: `cluster`, three embedded brokers for the length of a test.

    # conftest.py
    pytest_plugins = ["aioproducer.testing.pytest_plugin"]

    # test_orders.py
    async def test_order_is_sent(cluster):
        async with Producer(cluster.bootstrap_servers) as producer:
            await place_order(producer)

        assert [record.value for record in cluster.records("orders", 0)] == [b"..."]

Needs pytest-asyncio.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from aioproducer.testing import FakeCluster


@pytest_asyncio.fixture
async def cluster() -> "AsyncIterator[FakeCluster]":
    """A running `FakeCluster` of three brokers; topics are made on first use."""
    from aioproducer.testing import FakeCluster  # noqa: PLC0415 - only tests that ask for it load it

    async with FakeCluster(nodes=3) as running:
        yield running
