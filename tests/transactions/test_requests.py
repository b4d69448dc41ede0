"""Requests to coordinators, and their order. No network."""

import pytest

from aioproducer._accumulator.partition import Partition
from aioproducer._protocol.transaction_messages import CoordinatorResponse
from aioproducer._timing.timers import TICK_S
from aioproducer._transactions.begin_delays import TRANSACTIONS_PER_LATE_ONE
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer.cluster import Node
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from aioproducer.records import ConsumerGroupMetadata
from tests.fakes.transaction_scene import OFFSETS, READERS, Scene, State, on_both

LAST_WITHOUT_IDENTITY = 2
LAST_WITHOUT_MEMBER = 2


# Identity


def test_identity_comes_from_the_coordinator() -> None:
    """FindCoordinator at any broker, then InitProducerId without an id, which fences older producers."""
    scene = Scene()
    assert scene.asked() is None
    scene.manager.initialize()

    finding = scene.manager.next_request(scene.now)
    assert finding is not None
    assert (finding.api.name, scene.manager.node_of(finding)) == ("FindCoordinator", None)
    scene.manager.answered(finding, CoordinatorResponse(0, 0, 4, "h", 9092), scene.now)
    asking = scene.manager.next_request(scene.now)

    assert asking is not None
    assert (asking.api.name, scene.manager.node_of(asking)) == ("InitProducerId", Node(4, "h", 9092))
    assert scene.manager.next_request(scene.now) is None  # one at a time
    scene.answer(asking)
    assert (scene.manager.state, scene.identity.producer_id) == (State.READY, 77)


@pytest.mark.parametrize(
    "code, kind, hint",
    [
        (53, TransactionalIdAuthorizationError, "grant Write and Describe on the transactional id"),
        (50, BrokerError, "lower transaction_timeout_ms"),
        (90, ProducerFencedError, "a newer producer has taken it over, or the transaction timed out"),
        (47, ProducerFencedError, "a newer producer has taken it over, or the transaction timed out"),
    ],
)
def test_refused_identity_is_fatal(code: int, kind: type[KafkaError], hint: str) -> None:
    """The error says what to do; a missing permission must not block the client (KAFKA-13668)."""
    scene = Scene()
    scene.manager.initialize()

    scene.do("InitProducerId", code)

    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, kind)
    assert hint in str(scene.manager.error)
    assert scene.asked() is None


@pytest.mark.parametrize("code", [14, 15, 16, 51, 7, -1])
def test_unready_coordinator_is_retried_after_a_pause(code: int) -> None:
    """The user does not see it."""
    scene = Scene()
    scene.manager.initialize()

    scene.do("InitProducerId", code)

    assert scene.asked() is None
    assert scene.is_in(State.INITIALIZING)
    scene.pass_time(0.2)
    scene.do("InitProducerId")
    assert scene.is_in(State.READY)


def test_pauses_grow_until_a_success() -> None:
    """Also across successful lookups of the coordinator."""
    scene = Scene()
    scene.manager.initialize()
    pauses = []
    for _ in range(6):
        scene.do("InitProducerId", 16)
        pauses.append(round(scene.manager.pacing.next_at - scene.now, 3))
        scene.pass_time(pauses[-1])
    scene.do("InitProducerId")

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@on_both()
def test_pauses_restart_after_a_final_refusal(version: int) -> None:
    """The following abort would otherwise begin with the longest pause."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    for _ in range(5):
        scene.do("TxnOffsetCommit", 14)
        scene.pass_time(1)
    scene.do("TxnOffsetCommit", 30)
    scene.abort()

    scene.do("EndTxn", 14)

    assert scene.manager.pacing.next_at - scene.now == pytest.approx(0.1)


@pytest.mark.parametrize("code", [15, 16, None])
def test_moved_or_silent_coordinator_is_looked_up_again(code: int | None) -> None:
    """A dead coordinator was cached forever (aiokafka #1145, #1151)."""
    scene = Scene().begun(0)
    scene.commit()
    if code is None:
        scene.lose()
    else:
        scene.do("EndTxn", code)
        scene.pass_time(1)

    assert scene.asked() == "FindCoordinator"


def test_called_off_request_is_no_failure() -> None:
    """It was never sent; the next request goes to the same node without a pause."""
    scene = Scene().begun(0)
    scene.commit()
    scene.manager.unanswered(scene.ask(), None, was_sent=False, now=scene.now)

    assert scene.asked() == "EndTxn"


def test_coordinator_too_old_is_fatal() -> None:
    """It supports none of the requests."""
    scene = Scene()
    scene.manager.initialize()
    request = scene.ask()

    scene.manager.unsupported(request, UnsupportedVersionError("too old"))

    assert request.api.name == "InitProducerId"
    assert (scene.manager.state, str(scene.manager.error)) == (State.FATAL_ERROR, "too old")


# Transactions V2


def test_v2_sends_only_the_end() -> None:
    """Produce adds partitions; EndTxn returns the next identity, and sequences begin at 0 again."""
    scene = Scene().begun(0, 1)
    assert scene.asked() is None

    scene.manager.commit()
    assert scene.asked() is None  # batches are on their way
    scene.manager.flushed()
    scene.do("EndTxn")

    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)
    assert scene.asked() is None


def test_v2_partition_is_sent_to_at_once() -> None:
    """Its sequence begins at 0 in each transaction."""
    scene = Scene().ready()
    partition = scene.partition()
    stamps = []
    for _ in range(2):
        assert scene.manager.begin(2)
        assert not partition.identity.can_stamp
        assert scene.manager.use(partition, scene.now)
        stamps.append(partition.identity.stamp(3))
        scene.commit()
        scene.do("EndTxn")

    assert [tuple(stamp) for stamp in stamps] == [(77, 0, 0, True), (77, 1, 0, True)]


def test_v2_offsets_go_to_the_group_at_once() -> None:
    """TxnOffsetCommit adds the group itself."""
    scene = Scene().begun()
    offsets = OffsetsToSend(OFFSETS, READERS)

    scene.manager.send_offsets(offsets)
    request = scene.do("TxnOffsetCommit")

    assert offsets.is_done
    assert (request.coordinator.key, request.at_most) == ("readers", None)


# Transactions V1


def test_v1_partition_waits_until_it_is_added() -> None:
    """Waiting partitions are added together."""
    scene = Scene(version=0).begun()
    partitions = [scene.partition(number) for number in range(3)]
    for partition in partitions:
        assert not scene.manager.use(partition, scene.now)

    request = scene.ask()
    assert (request.api.name, scene.joined) == ("AddPartitionsToTxn", [])
    assert not any(partition.identity.can_stamp for partition in partitions)
    scene.answer(request)

    assert scene.joined == partitions
    assert all(partition.identity.can_stamp for partition in partitions)


def test_v1_later_partition_stops_no_other() -> None:
    """A failed addition once removed the others (franz-go)."""
    scene = Scene(version=0).begun()
    first, second = scene.partition(0), scene.partition(1)
    scene.manager.use(first, scene.now)
    scene.do("AddPartitionsToTxn")
    scene.manager.use(second, scene.now)

    scene.do("AddPartitionsToTxn", 51)

    assert (first.identity.can_stamp, second.identity.can_stamp) == (True, False)
    scene.abort()
    scene.pass_time(1)
    scene.do("EndTxn")
    assert scene.is_in(State.READY)


def test_v1_sequences_continue_across_transactions() -> None:
    scene = Scene(version=0).ready()
    partition = scene.partition()
    stamps = []
    for _ in range(2):
        assert scene.manager.begin(0)
        scene.manager.use(partition, scene.now)
        scene.do("AddPartitionsToTxn")
        stamps.append(partition.identity.stamp(3))
        scene.commit()
        scene.do("EndTxn")

    assert [tuple(stamp) for stamp in stamps] == [(77, 0, 0, True), (77, 0, 3, True)]


def test_v1_group_is_added_before_its_offsets() -> None:
    """At the transaction's coordinator, then at the group's; neither in a V2 version."""
    scene = Scene(version=0).begun()
    offsets = OffsetsToSend(OFFSETS, READERS)
    scene.manager.send_offsets(offsets)

    adding = scene.do("AddOffsetsToTxn")
    assert not offsets.is_done
    committing = scene.do("TxnOffsetCommit")
    scene.commit()
    ending = scene.do("EndTxn")

    assert offsets.is_done
    assert [request.coordinator.key for request in (adding, committing)] == ["billing-1", "readers"]
    assert [request.at_most for request in (committing, ending)] == [4, 4]


# One after another


def test_each_transaction_has_a_new_number() -> None:
    scene = Scene().begun(0)
    assert (scene.manager.number, scene.manager.has_ended) == (1, True)
    scene.manager.commit()
    assert not scene.manager.has_ended
    scene.manager.flushed()
    scene.do("EndTxn")

    assert scene.manager.begin(2)
    assert scene.manager.number == 2


def test_partition_joins_a_transaction_once() -> None:
    scene = Scene().ready()
    partition = scene.partition()
    assert not scene.manager.use(partition, scene.now)

    assert scene.manager.begin(2)
    assert scene.manager.use(partition, scene.now)
    assert not scene.manager.use(partition, scene.now)


def end_v2_transaction(scene: Scene, partition: Partition, *, first_response_s: float) -> None:
    assert scene.manager.begin(2)
    assert scene.manager.use(partition, scene.now)
    partition.identity.stamp(1)
    scene.identity.first_response_s = first_response_s
    scene.commit()
    scene.do("EndTxn")


def test_v2_records_pause_after_late_markers() -> None:
    """A first response that took the leader's 20 ms makes the next transaction wait for a tick of the event loop."""
    scene = Scene().ready()
    partitions = [scene.partition(number) for number in range(3)]
    end_v2_transaction(scene, partitions[0], first_response_s=0.002)
    end_v2_transaction(scene, partitions[0], first_response_s=0.023)

    assert scene.manager.begin(2)
    assert not scene.manager.use(partitions[0], scene.now)
    assert not scene.manager.use(partitions[1], scene.now)
    assert scene.asked() is None
    wait_s = scene.manager.next_at(scene.now) - scene.now
    assert 0 < wait_s <= TICK_S

    scene.pass_time(wait_s)
    assert scene.asked() is None
    assert scene.joined == partitions[:2]
    assert scene.manager.use(partitions[2], scene.now)


@pytest.mark.parametrize("in_time", [10, TRANSACTIONS_PER_LATE_ONE])
def test_v2_pause_ends_slowly_when_no_markers_are_late(in_time: int) -> None:
    """One response in time does not mean that the next one would be without the pause."""
    scene = Scene().ready()
    partition = scene.partition()
    end_v2_transaction(scene, partition, first_response_s=0.023)
    for _ in range(in_time):
        scene.pass_time(TICK_S)
        end_v2_transaction(scene, partition, first_response_s=0.002)

    assert scene.manager.begin(2)
    assert scene.manager.use(partition, scene.now) is (in_time == TRANSACTIONS_PER_LATE_ONE)


def test_v2_pause_grows_to_a_bound_while_markers_are_late() -> None:
    """Every response of a cluster far away is late, and no pause changes that."""
    scene = Scene().ready()
    partition = scene.partition()
    waits = []
    for _ in range(20):
        end_v2_transaction(scene, partition, first_response_s=0.023)
        assert scene.manager.begin(2)
        assert not scene.manager.use(partition, scene.now)
        waits.append(scene.manager.next_at(scene.now) - scene.now)
        scene.abort()
        assert scene.asked() is None
        scene.pass_time(waits[-1])

    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[1]
    assert waits[-1] == pytest.approx(0.003)


def test_v2_records_that_pause_are_aborted_without_a_request() -> None:
    """The coordinator has not heard of them."""
    scene = Scene().ready()
    partition = scene.partition()
    end_v2_transaction(scene, partition, first_response_s=0.023)
    assert scene.manager.begin(2)
    assert not scene.manager.use(partition, scene.now)
    scene.abort()

    assert scene.asked() is None
    assert scene.is_in(State.READY)


def test_v2_unsent_transaction_aborts_locally() -> None:
    """A coordinator that hands over may refuse it as fenced; the next one has the same epoch."""
    scene = Scene().ready()
    partition = scene.partition()
    assert scene.manager.begin(2)
    assert scene.manager.use(partition, scene.now)
    scene.abort()

    assert scene.asked() is None
    assert scene.is_in(State.READY)
    assert scene.manager.begin(2)
    assert scene.manager.use(partition, scene.now)
    assert tuple(partition.identity.stamp(1)) == (77, 0, 0, True)
    scene.abort()
    scene.do("EndTxn")
    assert scene.identity.first_epoch == 1


def test_disowned_identity_is_not_replaced() -> None:
    """A successor may have the transactional id, and a new identity would fence it."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.do("EndTxn", 47)
    scene.abort()

    scene.manager.unsupported(scene.ask(), UnsupportedVersionError("DescribeTransactions"))
    request = scene.ask()
    with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5") as refused:
        request.body(LAST_WITHOUT_IDENTITY)
    scene.manager.unsupported(request, refused.value)

    assert request.body(LAST_WITHOUT_IDENTITY + 1)
    assert scene.is_in(State.FATAL_ERROR)
    assert isinstance(scene.manager.error, ProducerFencedError)


def test_confirmed_identity_may_be_replaced() -> None:
    """EndTxn has just confirmed it, so a lost request does not end the producer."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.lose()
    scene.do("EndTxn")
    look = scene.ask()
    scene.manager.unsupported(look, UnsupportedVersionError("Kafka 3.0 is needed"))

    request = scene.ask()

    assert look.api.name == "DescribeTransactions"
    assert (request.api.name, request.subject) == ("InitProducerId", ("billing-1", 77, 0))
    assert request.body(LAST_WITHOUT_IDENTITY)


def test_doubt_ends_with_the_next_identity() -> None:
    """Newer coordinators have confirmed it."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.do("EndTxn", 47)
    scene.abort()
    scene.do("DescribeTransactions")
    scene.do("InitProducerId")

    scene.begun(1)
    scene.commit()
    scene.lose()
    scene.do("EndTxn")

    assert scene.ask().body(LAST_WITHOUT_IDENTITY)


@pytest.mark.parametrize(
    "group",
    [
        ConsumerGroupMetadata("readers", generation_id=7),
        ConsumerGroupMetadata("readers", member_id="m"),
        ConsumerGroupMetadata("readers", group_instance_id="i"),
    ],
    ids=["generation", "member", "instance"],
)
def test_offsets_are_not_sent_without_their_member(group: ConsumerGroupMetadata) -> None:
    """Without it the coordinator could not refuse a replaced member."""
    scene = Scene(version=0).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, group))
    scene.do("AddOffsetsToTxn")

    request = scene.ask()

    with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.5"):
        request.body(LAST_WITHOUT_MEMBER)
    assert request.body(LAST_WITHOUT_MEMBER + 1)


def test_offsets_of_a_bare_group_need_no_member() -> None:
    scene = Scene(version=0).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.do("AddOffsetsToTxn")

    assert scene.ask().body(LAST_WITHOUT_MEMBER)


def test_downgraded_transaction_ends_as_v1() -> None:
    """EndTxn 5 would be refused, so a new epoch comes from InitProducerId."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.version = 0
    scene.commit()
    request = scene.do("EndTxn")

    assert (request.at_most, scene.is_in(State.INITIALIZING)) == (4, True)
    scene.look_and_renew()
    assert (scene.manager.state, scene.identity.first_epoch) == (State.READY, 1)


def test_waiting_offsets_add_their_group_after_downgrade() -> None:
    """Under V1 they would be refused otherwise, or belong to no transaction."""
    scene = Scene(version=2).begun(0)
    scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    scene.manager.downgrade()

    scene.do("AddOffsetsToTxn")
    committing = scene.do("TxnOffsetCommit")

    assert committing.at_most == 4


def test_downgraded_abort_of_refused_records_succeeds() -> None:
    """V2 would have added the partitions; the coordinator knows of no transaction."""
    scene = Scene(version=2).begun(0)
    scene.manager.downgrade()
    scene.abort()
    scene.do("EndTxn", 48)
    scene.manager.next_request(scene.now)

    assert scene.is_in(State.INITIALIZING)
