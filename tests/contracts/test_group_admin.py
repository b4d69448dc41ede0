"""Groups as administrators see them: listed, described, deleted; the embedded cluster and real Kafka answer alike."""

import asyncio
from typing import Any

import pytest

from aioproducer.testing import ApiKey
from tests.contracts.group_member import SUBSCRIPTION, GroupMember
from tests.contracts.raw_client import RawClient

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 68, 69, 79


@pytest.fixture
async def member(client: RawClient, topic: str) -> GroupMember:
    member = GroupMember(client, topic)
    await member.wait_for_coordinator()
    return member


async def described(client: RawClient, group_id: str, version: int = 5) -> Any:
    answer = await client.ask(ApiKey.DESCRIBE_GROUPS, version, groups=(group_id,))
    return answer.groups[0]


async def state_of(client: RawClient, group_id: str) -> str:
    return str((await described(client, group_id)).group_state)


async def listed(client: RawClient, group_id: str, **filters: tuple[str, ...]) -> list[tuple[str, str, str]]:
    answer = await client.ask(ApiKey.LIST_GROUPS, 5, **filters)
    found = [group for group in answer.groups if group.group_id == group_id]
    return [(group.protocol_type, group.group_state, group.group_type) for group in found]


async def delete(client: RawClient, *names: str) -> dict[str, int]:
    """Delete groups; returns the errors by group."""
    answer = await client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=names)
    return {result.group_id: int(result.error_code) for result in answer.results}


async def test_group_is_described_in_each_state(client: RawClient, topic: str, member: GroupMember) -> None:
    """It exists as soon as a member was given an id, and stays after the last one has left."""
    states = [await state_of(client, topic)]
    steps = []
    for step in (member.join, member.join, lambda: member.sync(b"all"), member.leave):
        steps.append(await step())
        await settled(client, topic)
        states.append(await state_of(client, topic))

    assert steps == [MEMBER_ID_REQUIRED, 0, 0, 0]
    assert states == ["Dead", "Empty", "CompletingRebalance", "Stable", "Empty"]


async def settled(client: RawClient, group_id: str) -> None:
    async with asyncio.timeout(5):
        while await state_of(client, group_id) == "Dead":  # noqa: ASYNC110 - asks a broker
            await asyncio.sleep(0.02)


async def test_members_are_described(client: RawClient, topic: str, member: GroupMember) -> None:
    await member.join()
    await member.join()
    forming = await described(client, topic)
    await member.sync(b"all")
    stable = await described(client, topic)

    seen = [
        (group.protocol_type, group.protocol_data, one.client_id, one.client_host, one.member_id == member.member_id,
         one.member_metadata, one.member_assignment)
        for group in (forming, stable) for one in group.members
    ]  # fmt: skip
    assert seen == [
        ("consumer", "", "c", "/127.0.0.1", True, b"", b""),
        ("consumer", "range", "c", "/127.0.0.1", True, SUBSCRIPTION, b"all"),
    ]


@pytest.mark.parametrize(
    "filters, is_listed",
    [
        ({}, True),
        ({"states_filter": ("Stable",)}, True),
        ({"states_filter": ("empty", "stable")}, True),
        ({"states_filter": ("Empty",)}, False),
        ({"states_filter": ("nonsense",)}, False),
        ({"types_filter": ("Classic",)}, True),
        ({"types_filter": ("consumer",)}, False),
    ],
)
async def test_groups_are_listed_by_state_and_type(
    client: RawClient, topic: str, member: GroupMember, *, filters: dict[str, tuple[str, ...]], is_listed: bool
) -> None:
    await member.join()
    await member.join()
    await member.sync(b"all")

    assert await listed(client, topic, **filters) == [("consumer", "Stable", "classic")] * is_listed


async def test_group_without_members_is_deleted_with_its_offsets(
    client: RawClient, topic: str, member: GroupMember
) -> None:
    await client.create_topic(topic)
    await member.join()
    await member.join()
    await member.sync(b"all")
    await member.commit(topic, 7)
    refused = await delete(client, topic)
    await member.leave()
    before = await member.committed(topic)
    deleted = await delete(client, topic, "no-" + topic, topic)
    after = await member.committed(topic)

    assert refused == {topic: NON_EMPTY_GROUP}
    assert deleted == {topic: 0, "no-" + topic: GROUP_ID_NOT_FOUND}
    assert (before, after) == (7, -1)
    assert await listed(client, topic) == []


async def test_group_that_only_commits_is_a_group(client: RawClient, topic: str, member: GroupMember) -> None:
    await client.create_topic(topic)
    await member.commit(topic, 3)

    assert await listed(client, topic) == [("", "Empty", "classic")]
    assert await delete(client, topic) == {topic: 0}


async def test_unknown_group_is_described_as_the_release_does(broker_of_release: tuple[str, str], topic: str) -> None:
    """It is in state Dead; since version 6 it is an error. The authorized operations differ too."""
    release, address = broker_of_release
    is_old = release.startswith("3")
    client = await RawClient.connect(address)
    await GroupMember(client, topic).wait_for_coordinator()
    asked = {"groups": (topic,), "include_authorized_operations": True}
    (dead,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, 5, **asked)).groups
    (newest,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, 5 if is_old else 6, **asked)).groups
    await client.close()

    text = getattr(newest, "error_message", None)
    assert (int(dead.error_code), dead.group_state) == (0, "Dead")
    assert dead.authorized_operations == (328 if is_old else 3400)
    assert (int(newest.error_code), newest.group_state, text) == (
        (0, "Dead", None) if is_old else (GROUP_ID_NOT_FOUND, "Dead", f"Group {topic} not found.")
    )
    assert newest.authorized_operations == (328 if is_old else -(2**31))
