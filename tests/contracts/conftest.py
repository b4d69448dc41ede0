"""Clients of the contract tests."""

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.contracts.clients import RawClient
from tests.contracts.group_client import Room


@pytest.fixture
async def client(broker: str) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(broker)
    yield client
    await client.close()


@pytest.fixture
async def room(broker_of_release: tuple[str, str]) -> AsyncIterator[Room]:
    room = Room(*broker_of_release)
    await room.open()
    yield room
    await room.close()


@pytest.fixture
async def written(room: Room, topic: str) -> str:
    name = f"{topic}-{secrets.token_hex(3)}"
    await (await room.consumer()).client.create_topic(name)
    return name
