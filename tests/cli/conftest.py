"""The cluster of tests that run the command."""

from collections.abc import AsyncIterator

import pytest

from aioproducer.testing import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two brokers; topic `t` has one partition, so that order can be seen."""
    async with FakeCluster(2, topics={"t": 1}) as running:
        yield running
