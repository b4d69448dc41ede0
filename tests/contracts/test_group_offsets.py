"""Committed offsets of groups: the embedded cluster and real Kafka answer alike, in each release."""

import asyncio
import secrets

import pytest

from tests.contracts.group_room import LINES, Room
from tests.contracts.transactional_client import TransactionalClient

pytestmark = pytest.mark.parametrize("broker_of_release", LINES, indirect=True)


async def test_text_with_an_offset_has_a_limit(room: Room, written: str) -> None:
    """12 OFFSET_METADATA_TOO_LARGE counts 4096 of Java's characters, not bytes of UTF-8."""
    stranger = await room.consumer()

    texts = ["x" * 4096, "x" * 4097, "é" * 4096, "🐟" * 2049]
    errors = [await stranger.commit(written, offset, metadata=text) for offset, text in enumerate(texts)]

    assert (errors, await stranger.committed(written)) == ([0, 12, 0, 12], 2)


@pytest.mark.parametrize("version", [8, 9])
async def test_generation_of_a_group_that_is_not_there(room: Room, written: str, version: int) -> None:
    """It gets 22 ILLEGAL_GENERATION; Kafka 4 sends 69 GROUP_ID_NOT_FOUND to versions that know it."""
    stranger = await room.consumer(group=room.group + "-other")
    stranger.member_id, stranger.generation = "m", 3

    expected = 69 if version == 9 and room.release.startswith("4.") else 22
    assert await stranger.commit(written, version=version) == expected


async def test_group_is_there_once_somebody_has_wanted_to_join(room: Room, written: str) -> None:
    """A commit with a member id then gets 25 UNKNOWN_MEMBER_ID."""
    stranger = await room.consumer()
    await stranger.join()
    stranger.generation = 3

    assert await stranger.commit(written) == 25


async def test_unknown_topic_comes_before_errors_of_the_group(room: Room) -> None:
    """The error is 3 UNKNOWN_TOPIC_OR_PARTITION: the coordinator is not involved."""
    (member,) = await room.settled(None)
    member.generation = 7

    assert await member.commit("there-is-no-such-topic") == 3


async def test_offsets_go_with_their_topic(room: Room, written: str) -> None:
    """A recreated topic of the same name has no committed offsets."""
    stranger = await room.consumer()
    await stranger.commit(written, 7)
    before = await stranger.committed(written)

    await stranger.client.delete_topic(written)
    await stranger.client.create_topic(written)

    async with asyncio.timeout(10):
        while await stranger.committed(written) == 7:  # noqa: ASYNC110 - a real broker cleans up a moment later
            await asyncio.sleep(0.05)
    assert (before, await stranger.committed(written)) == (7, -1)


async def started(room: Room) -> TransactionalClient:
    producer = TransactionalClient((await room.consumer()).client, f"id-{secrets.token_hex(6)}")
    assert (await producer.init()).error == 0
    assert await producer.add_offsets(room.group) == 0
    return producer


async def test_text_with_an_offset_of_a_transaction_has_a_limit(room: Room, written: str) -> None:
    """The error is 12 OFFSET_METADATA_TOO_LARGE, as outside a transaction."""
    producer = await started(room)

    texts = ("x" * 4096, "x" * 4097)
    errors = [await producer.commit_offset(room.group, written, 7, version=3, metadata=text) for text in texts]

    assert errors == [0, 12]


async def test_offsets_of_an_open_transaction_go_with_their_topic(room: Room, written: str) -> None:
    """No offset is unstable then, and the transaction commits none."""
    producer = await started(room)
    await producer.commit_offset(room.group, written, 7, version=3)
    before = await producer.committed_offset(room.group, written)

    await producer.client.delete_topic(written)
    await producer.client.create_topic(written)
    async with asyncio.timeout(10):
        while await producer.committed_offset(room.group, written) == before:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    ended = await producer.end(commit=True, version=3)
    await producer.state()

    assert (before, ended.error) == ((88, -1), 0)
    assert await producer.committed_offset(room.group, written) == (0, -1)
