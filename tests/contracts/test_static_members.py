"""Members that keep their place through a restart (KIP-345): the embedded cluster and real Kafka answer alike."""

import asyncio

import pytest

from tests.contracts.group_client import Joined, Synced
from tests.contracts.group_room import LINES, Room

pytestmark = pytest.mark.parametrize("broker_of_release", LINES, indirect=True)


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
