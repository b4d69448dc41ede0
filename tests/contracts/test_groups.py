"""Consumer groups, request by request: the embedded cluster and real Kafka answer alike, on each broker line."""

import asyncio

import pytest

from tests.contracts.group_client import Joined, Synced
from tests.contracts.group_room import LINES, Room

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
