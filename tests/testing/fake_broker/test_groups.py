"""Consumer groups of the classic protocol, one behaviour a test."""

from datetime import timedelta
from importlib import import_module

from aioproducer.records import TopicPartition
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.groups.committed_offsets import CommittedOffset
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


def settled(network: ModelNetwork) -> Consumer:
    consumer = Consumer(network.client())
    consumer.join()
    consumer.join()
    consumer.sync(**{consumer.member_id: b"all"})
    assert consumer.synced() == (0, b"all")
    return consumer


def forming(network: ModelNetwork) -> tuple[Consumer, Consumer]:
    leader, follower = settled(network), Consumer(network.client())
    follower.join()
    follower.join()
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
    first, second = settled(network), Consumer(network.client())
    second.join()
    second.join()
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

    topic = network.model.topics.named("t")
    assert topic is not None
    network.model.topics.delete(topic, network.now)

    assert offsets.partitions() == [TopicPartition("other", 0)]
    assert [offsets.is_unstable(TopicPartition(name, 0)) for name in ("t", "other")] == [False, True]
