"""Consumer groups of the classic protocol, their offsets, and what administrators see of them."""

from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module

import pytest

from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.committed_offsets import CommittedOffset
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from tests.testing.model_network import ModelClient, ModelNetwork

JOIN, SYNC, HEARTBEAT, LEAVE = 5, 3, 3, 3  # the versions these tests speak


class Consumer:
    def __init__(self, client: ModelClient, member_id: str = "", *, instance_id: str | None = None) -> None:
        self.client = client
        self.member_id = member_id
        self.instance_id = instance_id
        self.generation = -1
        self.leader = ""

    def join(self, *, session_s: float = 10.0, rebalance_s: float = 20.0) -> int:
        """Send JoinGroup; returns the error, or -1 while it waits. Keeps the id it is given."""
        message = import_module(f"kio.schema.join_group.v{JOIN}.request")
        protocols = (message.JoinGroupRequestProtocol(name="range", metadata=b"m"),)
        self.client.send_message(
            ApiKey.JOIN_GROUP,
            JOIN,
            group_id="g",
            session_timeout=timedelta(seconds=session_s),
            rebalance_timeout=timedelta(seconds=rebalance_s),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        return self.joined() if self.client.received else -1

    def joined(self) -> int:
        answer = self.client.answer(ApiKey.JOIN_GROUP, JOIN)
        self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return int(answer.error_code)

    def sync(self, **assignments: bytes) -> None:
        message = import_module(f"kio.schema.sync_group.v{SYNC}.request")
        assigned = tuple(
            message.SyncGroupRequestAssignment(member_id=member, assignment=what)
            for member, what in assignments.items()
        )
        self.client.send_message(
            ApiKey.SYNC_GROUP,
            SYNC,
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=assigned,
        )

    def synced(self) -> tuple[int, bytes]:
        answer = self.client.answer(ApiKey.SYNC_GROUP, SYNC)
        return int(answer.error_code), answer.assignment

    def heartbeat(self) -> int:
        """Send a heartbeat; returns the error."""
        fields = {"group_id": "g", "generation_id": self.generation, "member_id": self.member_id}
        return int(self.client.ask(ApiKey.HEARTBEAT, HEARTBEAT, **fields).error_code)

    def leave(self) -> int:
        """Leave the group; returns the error."""
        message = import_module(f"kio.schema.leave_group.v{LEAVE}.request")
        members = (message.MemberIdentity(member_id=self.member_id),)
        answer = self.client.ask(ApiKey.LEAVE_GROUP, LEAVE, group_id="g", members=members)
        return int(answer.members[0].error_code)


def waiting(network: ModelNetwork) -> Consumer:
    """Return a consumer that has got an id and joined with it; it waits for others, if there are any."""
    consumer = Consumer(network.client())
    consumer.join()
    consumer.join()
    return consumer


def settled(network: ModelNetwork) -> Consumer:
    consumer = waiting(network)
    consumer.sync(**{consumer.member_id: b"all"})
    assert consumer.synced() == (0, b"all")
    return consumer


def forming(network: ModelNetwork) -> tuple[Consumer, Consumer]:
    leader, follower = settled(network), waiting(network)
    leader.join()
    follower.joined()
    return leader, follower


def test_member_gets_an_id_first() -> None:
    consumer = Consumer(ModelNetwork().client())
    errors = [consumer.join(), consumer.join()]

    assert errors == [79, 0]
    assert (consumer.leader, consumer.generation) == (consumer.member_id, 1)


def test_second_member_waits_for_the_first_to_join_again() -> None:
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    waiting = second.join()

    told = first.heartbeat()
    joined = first.join()

    assert (waiting, told, joined, second.joined()) == (-1, 27, 0, 0)
    assert (first.generation, second.generation, second.leader) == (2, 2, first.member_id)


def test_leader_assigns_for_all() -> None:
    network = ModelNetwork()
    first, second = forming(network)
    second.sync()
    before = bytes(second.client.received)

    first.sync(**{first.member_id: b"one", second.member_id: b"two"})

    assert (before, first.synced(), second.synced()) == (b"", (0, b"one"), (0, b"two"))


def test_session_ends_without_heartbeats() -> None:
    network = ModelNetwork()
    consumer = settled(network)

    network.advance(9)
    alive = consumer.heartbeat()
    network.advance(11)

    assert (alive, consumer.heartbeat()) == (0, 25)


def test_leaving_starts_a_rebalance() -> None:
    network = ModelNetwork()
    first, second = forming(network)

    left = second.leave()

    assert (left, first.heartbeat(), second.heartbeat()) == (0, 27, 25)


def test_member_that_does_not_join_again_is_dropped() -> None:
    """The rebalance time-out counts, though the member still sends heartbeats."""
    network = ModelNetwork()
    first, second = settled(network), waiting(network)
    for _ in range(4):
        network.advance(5)
        first.heartbeat()

    assert (second.joined(), second.leader) == (0, second.member_id)


def test_old_generation_is_refused() -> None:
    consumer = settled(ModelNetwork())
    consumer.generation = 0
    stranger = Consumer(consumer.client, "stranger")

    assert (consumer.heartbeat(), stranger.join()) == (22, 25)


def test_only_the_coordinator_serves_a_group() -> None:
    network = ModelNetwork(2)
    found = network.client().ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0).node_id
    elsewhere = Consumer(network.client(3 - found))

    assert elsewhere.join() == 16


def test_expired_id_is_unknown() -> None:
    network = ModelNetwork()
    consumer = settled(network)

    network.advance(11)

    assert consumer.join() == 25


def test_pending_id_expires() -> None:
    network = ModelNetwork()
    leader, pending = settled(network), Consumer(network.client())
    pending.join(session_s=6)
    waiting = leader.join()

    network.advance(7)

    assert (waiting, leader.joined(), leader.generation) == (-1, 0, 2)
    assert pending.join(session_s=6) == 25


def test_used_id_does_not_expire() -> None:
    network = ModelNetwork()
    consumer = Consumer(network.client())
    consumer.join(session_s=6)
    network.advance(5)
    consumer.join(session_s=6)

    assert network.model.next_wakeup() == network.now + 6
    network.advance(5)
    assert consumer.heartbeat() == 0


def test_member_waiting_in_sync_need_not_send_heartbeats() -> None:
    """A session does not expire during SyncGroup, and restarts with its response."""
    network = ModelNetwork()
    first, second = forming(network)
    second.sync()
    for _ in range(3):
        network.advance(5)
        first.heartbeat()

    first.sync(**{second.member_id: b"two"})
    network.advance(9)

    assert (second.synced(), second.heartbeat()) == ((0, b"two"), 0)


def test_member_removed_while_it_joins_is_notified() -> None:
    """An administrator may remove it on another connection; its JoinGroup gets 25."""
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    admin = Consumer(network.client(), second.member_id)
    waiting = second.join()

    left = admin.leave()

    assert (waiting, left, second.joined()) == (-1, 0, 25)
    assert first.join() == 0


def test_all_static_members_are_waited_for() -> None:
    """The rebalance ends when one joins or their sessions expire, and drops no member before."""
    network = ModelNetwork()
    first, second = Consumer(network.client(), instance_id="a"), Consumer(network.client(), instance_id="b")
    first.join(session_s=60)
    second.join(session_s=60)
    first.join(session_s=60)
    second.joined()
    assert second.leave() == 0

    network.advance(25)
    told = first.heartbeat()

    assert (told, first.join(session_s=60), first.generation) == (27, 0, 3)


def test_time_out_of_sessions_can_be_lowered() -> None:
    """`group_min_session_timeout_s` does it, as the setting of a real broker."""
    network = ModelNetwork(group_min_session_timeout_s=0.1, group_max_session_timeout_s=1.0)

    assert [Consumer(network.client()).join(session_s=seconds) for seconds in (0.05, 0.2, 2)] == [26, 79, 26]


def test_offsets_of_partitions_that_stay_are_kept() -> None:
    """A topic that is deleted takes none of another's."""
    network = ModelNetwork(topics={"t": 1, "other": 1})
    offsets = network.model.groups.named("g").offsets
    for topic in ("t", "other"):
        offsets.commit(TopicPartition(topic, 0), CommittedOffset(7))
        offsets.hold(1, TopicPartition(topic, 0), CommittedOffset(9))

    network.model.topics.delete(network.topic(), network.now)

    assert offsets.partitions() == [TopicPartition("other", 0)]
    assert [offsets.is_unstable(TopicPartition(name, 0)) for name in ("t", "other")] == [False, True]


def topic_key(network: ModelNetwork, version: int) -> dict[str, object]:
    return {"topic_id": network.topic().topic_id} if version >= 10 else {"name": "t"}


def commit(client: ModelClient, version: int, offset: int, *, generation: int = -1, member_id: str = "") -> int:
    message = import_module(f"kio.schema.offset_commit.v{version}.request")
    fields: dict[str, object] = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    key = topic_key(client.network, version)
    topic = message.OffsetCommitRequestTopic(partitions=(message.OffsetCommitRequestPartition(**fields),), **key)
    name = "generation_id_or_member_epoch"
    asked = {"group_id": "g", name: generation, "member_id": member_id, "topics": (topic,)}
    if 2 <= version <= 4:
        asked["retention_time"] = timedelta(milliseconds=-1)
    (answer,) = client.ask(ApiKey.OFFSET_COMMIT, version, **asked).topics
    return int(answer.partitions[0].error_code)


def committed(client: ModelClient, version: int, *, everything: bool = False) -> Sequence[int]:
    message = import_module(f"kio.schema.offset_fetch.v{version}.request")
    key = topic_key(client.network, version)
    if version < 8:
        topics = None if everything else (message.OffsetFetchRequestTopic(partition_indexes=(0,), **key),)
        answer = client.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)
    else:
        topics = None if everything else (message.OffsetFetchRequestTopics(partition_indexes=(0,), **key),)
        group = message.OffsetFetchRequestGroup(group_id="g", topics=topics)
        (answer,) = client.ask(ApiKey.OFFSET_FETCH, version, groups=(group,)).groups
    return [partition.committed_offset for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(version: int) -> None:
    client = ModelNetwork().client()

    assert (commit(client, version, 7), committed(client, 5)) == (0, [7])


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches_what_was_committed(version: int) -> None:
    client = ModelNetwork().client()
    before = committed(client, version)
    commit(client, 8, 7)

    assert (before, committed(client, version)) == ([-1], [7])


@pytest.mark.parametrize("version", [2, 7, 9, 10])
def test_everything_committed_is_fetched(version: int) -> None:
    client = ModelNetwork().client()
    before = committed(client, version, everything=True)
    commit(client, 8, 7)

    assert (before, committed(client, version, everything=True)) == ([], [7])


def test_commit_of_a_stranger_is_refused() -> None:
    client = ModelNetwork().client()
    unknown = commit(client, 8, 7, generation=3)
    commit(client, 8, 7)

    assert (unknown, commit(client, 8, 7, generation=3)) == (22, 25)


@pytest.mark.parametrize("topics", [(), ("unknown",)])
def test_commit_of_nothing_makes_no_group(topics: Sequence[str]) -> None:
    network = ModelNetwork()
    message = import_module("kio.schema.offset_commit.v8.request")
    part = message.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    asked = tuple(message.OffsetCommitRequestTopic(name=topic, partitions=(part,)) for topic in topics)

    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": asked}
    answer = network.client().ask(ApiKey.OFFSET_COMMIT, 8, **fields)

    assert [int(topic.partitions[0].error_code) for topic in answer.topics] == [3] * len(topics)
    assert not network.model.groups.existing()


NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE = 16, 15


def with_group(network: ModelNetwork) -> tuple[int, int]:
    node_id = network.model.coordinators.node_of(CoordinatorKind.GROUP, "g", network.now)
    consumer = Consumer(network.client(node_id))
    consumer.join()
    consumer.join()
    return node_id, 3 - node_id


def test_only_its_coordinator_tells_of_a_group() -> None:
    network = ModelNetwork(2)
    told = []
    for node_id in with_group(network):
        client = network.client(node_id)
        (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",)).groups
        listed = client.ask(ApiKey.LIST_GROUPS, 5).groups
        (deleted,) = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results
        told.append((int(described.error_code), described.group_state, len(listed), int(deleted.error_code)))

    assert told == [(0, "CompletingRebalance", 1, 68), (NOT_COORDINATOR, "", 0, NOT_COORDINATOR)]


def test_asking_for_a_group_makes_none() -> None:
    client = ModelNetwork().client()
    client.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=("g",))
    client.ask(ApiKey.DELETE_GROUPS, 0, groups_names=("g",))

    assert client.ask(ApiKey.LIST_GROUPS, 0).groups == ()


def test_queries_create_no_group() -> None:
    """Requests for its members and offsets create no group either."""
    network = ModelNetwork()
    stranger = Consumer(network.client(), "stranger")
    errors = [stranger.join(), stranger.heartbeat(), stranger.leave()]
    errors.append(commit(stranger.client, 8, 7, generation=3))

    assert (errors, committed(stranger.client, 5)) == ([25, 25, 25, 22], [-1])
    assert not network.model.groups.existing()


def test_deleted_group_takes_its_ids_back() -> None:
    """No appointment is left for ids that were still pending."""
    network = ModelNetwork()
    pending = Consumer(network.client())
    pending.join()

    (deleted,) = pending.client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results

    assert (int(deleted.error_code), network.model.next_wakeup(), pending.join()) == (0, None, 25)


def test_faults_reach_all_three() -> None:
    network = ModelNetwork()
    with_group(network)
    client = network.client()
    for api in (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS):
        network.model.faults.error(COORDINATOR_NOT_AVAILABLE, Where(api=api))
    (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=("g",)).groups
    listed = client.ask(ApiKey.LIST_GROUPS, 5)
    (deleted,) = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results

    codes = [int(described.error_code), int(listed.error_code), int(deleted.error_code)]
    assert codes == [COORDINATOR_NOT_AVAILABLE] * 3
    assert listed.groups == ()
