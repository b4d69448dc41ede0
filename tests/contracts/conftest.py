"""What contract tests ask a broker with."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.raw_client import RawClient


@pytest.fixture
async def client(broker: str) -> AsyncIterator[RawClient]:
    """A connection to a broker of each kind in turn."""
    client = await RawClient.connect(broker)
    yield client
    await client.close()
