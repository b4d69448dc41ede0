"""Consumer groups of the classic protocol, one behaviour a test."""

from datetime import timedelta
from importlib import import_module

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelClient, ModelNetwork

JOIN, SYNC, HEARTBEAT, LEAVE = 5, 3, 3, 3
"""The versions these tests speak."""


class Consumer:
    """A member of group `g`."""

    def __init__(self, client: ModelClient, member_id: str = "") -> None:
        self.client = client
        self.member_id = member_id
        self.generation = -1
        self.leader = ""

    def join(self, *, session_s: float = 10.0) -> int:
        """Ask to join; returns the error, or -1 while it waits. Takes the id it is given."""
        message = import_module(f"kio.schema.join_group.v{JOIN}.request")
        protocols = (message.JoinGroupRequestProtocol(name="range", metadata=b"m"),)
        self.client.send_message(
            ApiKey.JOIN_GROUP,
            JOIN,
            group_id="g",
            session_timeout=timedelta(seconds=session_s),
            rebalance_timeout=timedelta(seconds=20),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        return self.joined() if self.client.received else -1

    def joined(self) -> int:
        """Read the answer to `join`."""
        answer = self.client.answer(ApiKey.JOIN_GROUP, JOIN)
        self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return int(answer.error_code)

    def sync(self, **assignments: bytes) -> None:
        """Send assignments (the leader) or ask for one."""
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
        """Error and assignment."""
        answer = self.client.answer(ApiKey.SYNC_GROUP, SYNC)
        return int(answer.error_code), answer.assignment

    def heartbeat(self) -> int:
        """The error of a heartbeat."""
        fields = {"group_id": "g", "generation_id": self.generation, "member_id": self.member_id}
        return int(self.client.ask(ApiKey.HEARTBEAT, HEARTBEAT, **fields).error_code)

    def leave(self) -> int:
        """The error of leaving."""
        message = import_module(f"kio.schema.leave_group.v{LEAVE}.request")
        members = (message.MemberIdentity(member_id=self.member_id),)
        answer = self.client.ask(ApiKey.LEAVE_GROUP, LEAVE, group_id="g", members=members)
        return int(answer.members[0].error_code)


def settled(network: ModelNetwork) -> Consumer:
    """One member, alone in a stable group."""
    consumer = Consumer(network.client())
    consumer.join()
    consumer.join()
    consumer.sync(**{consumer.member_id: b"all"})
    assert consumer.synced() == (0, b"all")
    return consumer


def test_member_gets_an_id_first() -> None:
    """79 MEMBER_ID_REQUIRED, then it is in, alone and leading."""
    consumer = Consumer(ModelNetwork().client())
    errors = [consumer.join(), consumer.join()]

    assert errors == [79, 0]
    assert (consumer.leader, consumer.generation) == (consumer.member_id, 1)


def test_second_member_waits_for_the_first_to_join_again() -> None:
    """The first learns of it by its heartbeat; then both are in the next generation."""
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    waiting = second.join()

    told = first.heartbeat()
    joined = first.join()

    assert (waiting, told, joined, second.joined()) == (-1, 27, 0, 0)
    assert (first.generation, second.generation, second.leader) == (2, 2, first.member_id)


def test_leader_assigns_for_all() -> None:
    """The others wait for it."""
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    second.join()
    first.join()
    second.joined()
    second.sync()
    before = bytes(second.client.received)

    first.sync(**{first.member_id: b"one", second.member_id: b"two"})

    assert (before, first.synced(), second.synced()) == (b"", (0, b"one"), (0, b"two"))


def test_session_ends_without_heartbeats() -> None:
    """The member is unknown then, and the group empty."""
    network = ModelNetwork()
    consumer = settled(network)

    network.advance(9)
    alive = consumer.heartbeat()
    network.advance(11)

    assert (alive, consumer.heartbeat()) == (0, 25)


def test_leaving_starts_a_rebalance() -> None:
    """Those who stay are told by their heartbeats."""
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    second.join()
    first.join()
    second.joined()

    left = second.leave()

    assert (left, first.heartbeat(), second.heartbeat()) == (0, 27, 25)


def test_who_does_not_join_again_is_dropped() -> None:
    """After the rebalance time-out, though it still sends heartbeats."""
    network = ModelNetwork()
    first, second = settled(network), Consumer(network.client())
    second.join()
    second.join()
    for _ in range(4):
        network.advance(5)
        first.heartbeat()

    assert (second.joined(), second.leader) == (0, second.member_id)


def test_old_generation_is_refused() -> None:
    """22 ILLEGAL_GENERATION, 25 for a member nobody knows."""
    consumer = settled(ModelNetwork())
    consumer.generation = 0
    stranger = Consumer(consumer.client, "stranger")

    assert (consumer.heartbeat(), stranger.join()) == (22, 25)


def test_only_the_coordinator_serves_a_group() -> None:
    """16 NOT_COORDINATOR from the other broker."""
    network = ModelNetwork(2)
    found = network.client().ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0).node_id
    elsewhere = Consumer(network.client(3 - found))

    assert elsewhere.join() == 16
