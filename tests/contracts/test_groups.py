"""Consumer groups, request by request: the embedded cluster and real Kafka answer alike, on each broker line."""

import asyncio
import secrets
from typing import Any

import pytest

from aioproducer.testing import ApiKey
from tests.contracts.clients import RawClient, TransactionalClient
from tests.contracts.group_client import LINES, GroupClient, Joined, Room, Synced

pytestmark = pytest.mark.parametrize("broker_of_release", LINES, indirect=True)


# Ids of those who are gone


async def test_id_of_a_member_that_left_is_unknown(room: Room) -> None:
    stays, leaves = await room.settled(None, None)

    left = await leaves.leave()

    assert (left, await leaves.leave(), (await leaves.join()).error) == ([0], [25], 25)
    assert await stays.heartbeat() == 27


async def test_id_of_a_dropped_member_is_unknown(room: Room) -> None:
    silent, other = await room.consumer(), await room.consumer()
    await silent.enter(rebalance_s=0.5)
    await silent.sync(**{silent.member_id: b""})

    joined = await other.enter(rebalance_s=0.5)

    assert (joined.error, joined.others) == (0, (other.member_id,))
    assert (await silent.heartbeat(), (await silent.join()).error) == (25, 25)


async def test_id_is_good_for_one_group(room: Room) -> None:
    (member,) = await room.settled(None)
    stranger = await room.consumer(group=room.group + "-other")
    stranger.member_id = member.member_id

    unknown = await stranger.join()
    await (await room.consumer(group=stranger.group)).enter()

    assert (unknown.error, (await stranger.join()).error) == (25, 25)


async def test_id_can_be_given_back_before_it_is_used(room: Room) -> None:
    pending = await room.consumer()

    given = await pending.join()
    left = await pending.leave()

    assert (given.error, left, await pending.leave(), (await pending.join()).error) == (79, [0], [25], 25)


async def test_rebalance_waits_for_those_who_were_given_an_id(room: Room) -> None:
    """It waits until they join or give the id back."""
    (leader,), pending, watch = await room.settled(None), await room.consumer(), await room.consumer()
    await pending.join()
    watch.member_id, watch.generation = leader.member_id, leader.generation

    rejoining = asyncio.ensure_future(leader.join())
    await watch.until_heartbeat(27)
    await asyncio.sleep(0.2)
    was_waiting = not rejoining.done()
    left = await pending.leave()

    assert (was_waiting, left, (await rejoining).generation) == (True, [0], 2)


async def test_pending_id_that_is_given_back_to_a_stable_group(room: Room) -> None:
    """Kafka 4 takes it for a member that leaves: the others join again."""
    (leader,), pending = await room.settled(None), await room.consumer()
    await pending.join()

    await pending.leave()

    assert await leader.heartbeat() == (27 if room.release.startswith("4.") else 0)


# Requests that are refused


@pytest.mark.parametrize("session_s, error", [(5.999, 26), (6, 79), (1800, 79), (1800.001, 26)])
async def test_session_time_out_has_bounds(room: Room, session_s: float, error: int) -> None:
    """26 INVALID_SESSION_TIMEOUT: `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."""
    joined = await (await room.consumer()).join(session_s=session_s)

    assert joined == Joined(error, member_id=joined.member_id)
    assert bool(joined.member_id) is (error == 79)


async def test_group_must_have_a_name(room: Room) -> None:
    """24 INVALID_GROUP_ID comes before all other checks."""
    stranger = await room.consumer(group="")

    joined, synced, left = await stranger.join(session_s=1), await stranger.sync(), await stranger.leave(("m", None))

    assert (joined, synced) == (Joined(24), Synced(24))
    assert (left, await stranger.heartbeat()) == ([24], 24)


async def test_member_must_offer_what_the_group_has(room: Room) -> None:
    """23 INCONSISTENT_GROUP_PROTOCOL, for none or other protocols; no id is given out for such a request."""
    new = await room.consumer()

    empty = [await new.join(protocols={}), await new.join(protocol_type="")]
    await room.settled(None)
    other = [
        await new.join(protocols={"sticky": b""}),
        await new.join(protocol_type="connect"),
        await new.join(3, protocols={}),
    ]

    assert (empty, other) == ([Joined(23)] * 2, [Joined(23), Joined(23), Joined(23, protocol="")])


@pytest.mark.parametrize("named", [{"kind": "connect"}, {"name": "sticky"}, {"kind": None}, {"name": None}])
async def test_sync_names_the_protocol_of_the_group(room: Room, named: dict[str, str | None]) -> None:
    """Since SyncGroup 5 others get 23 INCONSISTENT_GROUP_PROTOCOL."""
    (member,) = await room.settled(None)

    assert await member.sync(**named) == Synced(23)  # type: ignore[arg-type]
    assert await member.sync(4) == Synced(0, b"0")


async def test_refused_sync_names_no_protocol(room: Room) -> None:
    """A SyncGroup during a rebalance gets none either."""
    (member,), new = await room.settled(None), await room.consumer()
    async with asyncio.TaskGroup() as group:
        group.create_task(new.enter())
        await member.until_heartbeat(27)
        rebalancing = await member.sync()
        group.create_task(member.join())
    member.generation += 1

    assert (rebalancing, await member.sync()) == (Synced(27), Synced(22))


@pytest.mark.parametrize("version", [6, 7])
async def test_refused_join_names_no_protocol(room: Room, version: int) -> None:
    """An empty name before JoinGroup 7."""
    new = await room.consumer()

    given = await new.join(version)
    new.member_id = "stranger"

    assert given == Joined(79, protocol=None if version >= 7 else "", member_id=given.member_id)
    assert await new.join(version) == Joined(25, protocol=given.protocol, member_id="stranger")


async def test_leader_that_missed_the_answer_joins_again(room: Room) -> None:
    """Before it has assigned, it gets the same response again, without a rebalance."""
    member = await room.consumer()

    first = await member.enter()

    assert (await member.join(), first.others) == (first, (member.member_id,))


async def test_most_preferred_protocol_wins(room: Room) -> None:
    one, two, three = [await room.consumer() for _ in range(3)]
    await one.enter(protocols={"a": b"", "b": b"", "c": b""})

    async with asyncio.TaskGroup() as group:
        for new in (two, three):
            group.create_task(new.enter(protocols={"c": b"", "b": b""}))
        await one.until_heartbeat(27)
        await asyncio.sleep(0.2)
        again = group.create_task(one.join(protocols={"a": b"", "b": b"", "c": b""}))

    assert again.result().protocol == "c"


# Members that keep their place through a restart (KIP-345)


async def test_instance_comes_back_unnoticed(room: Room) -> None:
    """It gets the same generation and assignment under a new id; a leader need not assign."""
    leader, follower = await room.settled("a", "b")
    again, other = await room.consumer("a"), await room.consumer("b")

    led, followed = await again.join(), await other.join()

    assert led == Joined(0, 2, "range", again.member_id, again.member_id, True, led.others)
    assert followed == Joined(0, 2, "range", again.member_id, other.member_id)
    assert set(led.others) == {again.member_id, follower.member_id}
    assert again.member_id.startswith("a-")
    assert again.member_id != leader.member_id
    assert await again.sync() == Synced(0, b"0", "consumer", "range")
    assert (await other.sync(), await other.heartbeat()) == (Synced(0, b"1", "consumer", "range"), 0)


async def test_returning_leader_is_not_leader_before_join_9(room: Room) -> None:
    """JoinGroup before version 9 has no other way to keep it from assigning."""
    (leader,) = await room.settled("a")
    again = await room.consumer("a")

    joined = await again.join(8)

    assert joined == Joined(0, 1, "range", leader.member_id, again.member_id)


async def test_replaced_member_is_fenced(room: Room) -> None:
    """It gets 82 if it names its instance, otherwise 25."""
    (member,) = await room.settled("a")
    former = member.former()
    await (await room.consumer("a")).join()

    errors = [await former.heartbeat(), (await former.sync()).error, *await former.leave()]
    joined = await former.join()
    former.instance_id = None

    assert errors == [82, 82, 82]
    assert joined == Joined(82, member_id=member.member_id)
    assert (await former.heartbeat(), (await former.join()).error) == (25, 25)


async def test_unknown_instance_is_no_member(room: Room, written: str) -> None:
    (member,) = await room.settled(None)
    member.instance_id = "other"

    errors = [
        await member.heartbeat(),
        (await member.sync()).error,
        *await member.leave(),
        await member.commit(written),
    ]

    assert (errors, (await member.former().join()).error) == ([25, 25, 25, 25], 25)


async def test_fenced_member_commits_nothing(room: Room, written: str) -> None:
    (member,) = await room.settled("a")
    await (again := await room.consumer("a")).join()

    assert (await member.commit(written), await again.commit(written)) == (82, 0)


async def test_instance_leaves_by_its_name(room: Room) -> None:
    """An administrator sends an empty member id; one request may name several."""
    await room.settled("a", "b")
    admin = await room.consumer()

    errors = await admin.leave(("", "a"), ("", "a"), ("", "other"), ("", None), ("", "b"))

    assert errors == [0, 25, 25, 25, 0]


async def test_instance_rebalances_when_it_returns_before_sync(room: Room) -> None:
    member, again = await room.consumer("a"), await room.consumer("a")
    await member.join()

    joined = await again.join()

    assert (joined.generation, joined.leader, joined.skips) == (2, again.member_id, False)


async def test_waiting_member_is_fenced_at_once(room: Room) -> None:
    leader, other = await room.settled("a", None)
    again = await room.consumer("a")
    waiting = asyncio.ensure_future(leader.join())
    await other.until_heartbeat(27)

    joining = asyncio.ensure_future(again.join())
    fenced = await waiting
    rejoined = await other.join()

    assert fenced == Joined(82, member_id=leader.member_id)
    assert ((await joining).generation, rejoined.generation) == (3, 3)


async def test_static_member_is_not_dropped_from_a_rebalance(room: Room) -> None:
    silent, other = await room.consumer("a"), await room.consumer()
    await silent.enter(rebalance_s=0.5)
    await silent.sync(**{silent.member_id: b""})

    joined = await other.enter(rebalance_s=0.5)

    assert (joined.generation, joined.leader) == (2, other.member_id)
    assert set(joined.others) == {silent.member_id, other.member_id}
    assert await silent.heartbeat() == 22


# Committed offsets


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


async def test_group_exists_once_a_member_has_asked_to_join(room: Room, written: str) -> None:
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


# As administrators see them: listed, described, deleted


NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 68, 69, 79
SUBSCRIPTION = {"range": bytes(6) + b"\xff\xff\xff\xff"}
"""To no topic: brokers read it (and one that they cannot read may get no answer)."""


@pytest.fixture
async def member(room: Room) -> GroupClient:
    return await room.consumer()


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


async def test_group_is_described_in_each_state(member: GroupClient) -> None:
    """It exists as soon as a member was given an id, and stays after the last one has left."""
    client, group = member.client, member.group
    states, errors = [await state_of(client, group)], [await join(member)]
    while await state_of(client, group) == "Dead":  # noqa: ASYNC110  # Kafka 4 gives the id before its log has the group
        await asyncio.sleep(0.01)
    states.append(await state_of(client, group))
    for step in (join, assign, leave):
        errors.append(await step(member))
        states.append(await state_of(client, group))

    assert errors == [MEMBER_ID_REQUIRED, 0, 0, 0]
    assert states == ["Dead", "Empty", "CompletingRebalance", "Stable", "Empty"]


async def join(member: GroupClient) -> int:
    return (await member.join(protocols=SUBSCRIPTION)).error


async def assign(member: GroupClient) -> int:
    return (await member.sync(**{member.member_id: b"all"})).error


async def leave(member: GroupClient) -> int:
    (error,) = await member.leave()
    return error


async def test_members_are_described(member: GroupClient) -> None:
    await member.enter(protocols=SUBSCRIPTION)
    forming = await described(member.client, member.group)
    await assign(member)
    stable = await described(member.client, member.group)

    seen = [
        (group.protocol_type, group.protocol_data, one.client_id, one.client_host, one.member_id == member.member_id,
         one.member_metadata, one.member_assignment)
        for group in (forming, stable) for one in group.members
    ]  # fmt: skip
    assert seen == [
        ("consumer", "", "c", "/127.0.0.1", True, b"", b""),
        ("consumer", "range", "c", "/127.0.0.1", True, SUBSCRIPTION["range"], b"all"),
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
    member: GroupClient, *, filters: dict[str, tuple[str, ...]], is_listed: bool
) -> None:
    await member.enter(protocols=SUBSCRIPTION)
    await assign(member)

    assert await listed(member.client, member.group, **filters) == [("consumer", "Stable", "classic")] * is_listed


async def test_group_without_members_is_deleted_with_its_offsets(member: GroupClient, written: str) -> None:
    group, other = member.group, "no-" + member.group
    await member.enter(protocols=SUBSCRIPTION)
    await assign(member)
    await member.commit(written, 7)
    refused = await delete(member.client, group)
    await leave(member)
    before = await member.committed(written)
    deleted = await delete(member.client, group, other, group)
    after = await member.committed(written)

    assert refused == {group: NON_EMPTY_GROUP}
    assert deleted == {group: 0, other: GROUP_ID_NOT_FOUND}
    assert (before, after) == (7, -1)
    assert await listed(member.client, group) == []


async def test_group_that_only_commits_is_a_group(member: GroupClient, written: str) -> None:
    await member.commit(written, 3)

    assert await listed(member.client, member.group) == [("", "Empty", "classic")]
    assert await delete(member.client, member.group) == {member.group: 0}


async def test_unknown_group_is_described_as_the_release_does(room: Room) -> None:
    """It is in state Dead; since version 6 it is an error. The authorized operations differ too."""
    is_old = room.release.startswith("3")
    client = (await room.consumer()).client
    asked = {"groups": (room.group,), "include_authorized_operations": True}
    (dead,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, 5, **asked)).groups
    (newest,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, 5 if is_old else 6, **asked)).groups

    text = getattr(newest, "error_message", None)
    assert (int(dead.error_code), dead.group_state) == (0, "Dead")
    assert dead.authorized_operations == (328 if is_old else 3400)
    assert (int(newest.error_code), newest.group_state, text) == (
        (0, "Dead", None) if is_old else (GROUP_ID_NOT_FOUND, "Dead", f"Group {room.group} not found.")
    )
    assert newest.authorized_operations == (328 if is_old else -(2**31))
