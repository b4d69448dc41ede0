"""Time-outs of consumer groups, and groups whose coordinator moves."""

from datetime import timedelta
from importlib import import_module

from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.consumer_groups import NEW_MEMBER_JOIN_S, GroupState
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from tests.testing.fake_broker.test_groups import Consumer, commit, forming, settled, waiting
from tests.testing.model_network import ModelNetwork

NOT_COORDINATOR = 16


def keep_alive(network: ModelNetwork, consumer: Consumer, seconds: int) -> None:
    for _ in range(seconds // 5):
        network.advance(5)
        consumer.heartbeat()


def test_leader_that_does_not_sync_is_dropped() -> None:
    """The rebalance time-out counts, though it sends heartbeats; waiting members must join again."""
    network = ModelNetwork()
    leader, follower = forming(network)
    follower.sync()

    keep_alive(network, leader, 20)

    assert (follower.synced()[0], leader.heartbeat(), follower.heartbeat()) == (27, 25, 27)
    assert (follower.join(), follower.leader) == (0, follower.member_id)


def test_follower_that_does_not_sync_is_dropped() -> None:
    """Without SyncGroup it would not know its assignment."""
    network = ModelNetwork()
    leader, follower = forming(network)
    leader.sync(**{leader.member_id: b"all"})
    leader.synced()
    for _ in range(4):
        network.advance(5)
        told = leader.heartbeat(), follower.heartbeat()

    assert told == (27, 25)


def test_member_that_synced_in_time_stays() -> None:
    network = ModelNetwork()
    leader, follower = forming(network)
    leader.sync(**{leader.member_id: b"all"})
    leader.synced()
    follower.sync()
    follower.synced()
    for _ in range(6):
        network.advance(5)
        told = leader.heartbeat(), follower.heartbeat()

    assert told == (0, 0)


def test_time_to_sync_restarts_with_each_generation() -> None:
    network = ModelNetwork()
    leader, follower = forming(network)
    keep_alive(network, leader, 5)
    third = waiting(network)
    leader.join()
    follower.join()
    leader.joined()
    third.joined()
    for _ in range(3):
        network.advance(5)
        told = leader.heartbeat(), follower.heartbeat(), third.heartbeat()

    assert (third.generation, told) == (3, (0, 0, 0))


def test_static_members_that_ask_for_no_time() -> None:
    """The group checks repeatedly for them, and the clock still advances."""
    network = ModelNetwork()
    first, second = Consumer(network.client(), instance_id="a"), Consumer(network.client(), instance_id="b")
    first.join(session_s=60, rebalance_s=-1)
    second.join(session_s=60, rebalance_s=-1)
    first.join(session_s=60, rebalance_s=-1)
    second.joined()
    assert second.leave() == 0

    network.advance(25)
    told = first.heartbeat()

    assert (told, first.join(session_s=60), first.generation) == (27, 0, 3)


def test_rebalance_may_take_a_session_where_no_time_is_named() -> None:
    """JoinGroup 0 has no rebalance time-out, so the session time-out counts."""
    network = ModelNetwork()
    first, second = Consumer(network.client()), Consumer(network.client())
    join_as_first_version(first)
    answer = first.client.answer(ApiKey.JOIN_GROUP, 0)
    first.member_id, first.generation = answer.member_id, answer.generation_id
    network.advance(1)
    first.sync()
    first.synced()
    join_as_first_version(second)

    network.advance(5)
    told = first.heartbeat(), bool(second.client.received)
    network.advance(5)

    assert (told, first.heartbeat()) == ((27, False), 25)
    assert int(second.client.answer(ApiKey.JOIN_GROUP, 0).error_code) == 0


def join_as_first_version(consumer: Consumer) -> None:
    message = import_module("kio.schema.join_group.v0.request")
    consumer.client.send_message(
        ApiKey.JOIN_GROUP,
        0,
        group_id="g",
        session_timeout=timedelta(seconds=10),
        member_id="",
        protocol_type="consumer",
        protocols=(message.JoinGroupRequestProtocol(name="range", metadata=b"m"),),
    )


def test_commits_keep_a_session_alive() -> None:
    """This holds in a stable group, and while others wait for the member to join again."""
    network = ModelNetwork()
    consumer, other = settled(network), Consumer(network.client())
    errors = commit_for_16_s(network, consumer)
    other.join()
    other.join()
    errors += commit_for_16_s(network, consumer)

    assert (errors, consumer.heartbeat()) == ([0] * 8, 27)


def commit_for_16_s(network: ModelNetwork, consumer: Consumer) -> list[int]:
    """Every four seconds; returns the errors."""
    errors = []
    for _ in range(4):
        network.advance(4)
        who = {"generation": consumer.generation, "member_id": consumer.member_id}
        errors.append(commit(consumer.client, 8, 7, **who))
    return errors


def test_new_member_does_not_wait_forever() -> None:
    """It gets 25, so that a living member joins again; the others continue without it."""
    network = ModelNetwork()
    leader, second = settled(network), Consumer(network.client())
    second.join(rebalance_s=1800)
    second.join(rebalance_s=1800)
    keep_alive(network, leader, int(NEW_MEMBER_JOIN_S) - 5)
    waiting = bytes(second.client.received)
    keep_alive(network, leader, 5)

    assert (waiting, second.joined()) == (b"", 25)
    assert (leader.join(), len(network.model.groups.named("g").members)) == (0, 1)


# A coordinator that moves


def move(network: ModelNetwork, node_id: int) -> None:
    """Let this broker coordinate the group, and wait until it has loaded it."""
    network.model.coordinators.move(CoordinatorKind.GROUP, "g", node_id, now=network.now)
    network.settle()
    network.advance(1)


def moving() -> ModelNetwork:
    network = ModelNetwork(2)
    move(network, 1)
    return network


def test_waiting_join_is_refused_by_a_coordinator_that_was() -> None:
    """The one that is now does not know the new member; the others find it as it was."""
    network = moving()
    leader, second = settled(network), waiting(network)

    move(network, 2)
    leader.client = network.client(2)

    assert (second.joined(), leader.join(), leader.generation) == (NOT_COORDINATOR, 0, 2)
    assert len(network.model.groups.named("g").members) == 1


def test_waiting_sync_is_refused_by_a_coordinator_that_was() -> None:
    """The member stays in the group and can send SyncGroup to the new coordinator."""
    network = moving()
    leader, follower = forming(network)
    follower.sync()

    move(network, 2)
    leader.client = network.client(2)
    leader.sync(**{follower.member_id: b"all"})
    refused = follower.synced()
    follower.client = network.client(2)
    follower.sync()

    assert (refused[0], follower.synced()) == (NOT_COORDINATOR, (0, b"all"))


def test_coordinator_that_died_takes_its_new_members_along() -> None:
    """The group does not wait for members whose JoinGroup waited on its connections."""
    network = moving()
    leader = settled(network)
    waiting(network)

    network.model.kill(1, network.now)
    leader.client = network.client(2)
    network.advance(1)

    assert (leader.heartbeat(), leader.join(), leader.generation) == (27, 0, 2)
    assert len(network.model.groups.named("g").members) == 1


def test_group_of_new_members_is_empty_at_another_coordinator() -> None:
    """Members that waited for a pending id are forgotten."""
    network = moving()
    leader, second, pending = settled(network), Consumer(network.client()), Consumer(network.client())
    second.join()
    second.join()
    pending.join()
    leader.leave()

    move(network, 2)

    assert (second.joined(), network.model.groups.named("g").state) == (NOT_COORDINATOR, GroupState.EMPTY)


def test_sessions_restart_at_another_coordinator() -> None:
    """This includes members that waited longer than their session and do not come back."""
    network = moving()
    leader, follower = forming(network)
    follower.sync()
    keep_alive(network, leader, 15)

    move(network, 2)
    leader.client = network.client(2)
    leader.sync(**{follower.member_id: b"all"})
    leader.synced()
    keep_alive(network, leader, 15)

    assert (leader.heartbeat(), follower.synced()[0]) == (27, NOT_COORDINATOR)
    follower.client = network.client(2)
    assert follower.heartbeat() == 25
