"""The sender's turns: requests, responses, lost connections, deadlines, and the texts of errors."""

import struct
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._accumulator.partition import Partition, Topic
from aioproducer._accumulator.producer_identity import LAST_EPOCH
from aioproducer._native.delivery import Delivery
from aioproducer._network.requests import WRITTEN, Answered, OutgoingRequest
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._sender.sender import LAST_VERSION_BY_NAME, ProduceRequest
from aioproducer.cluster import Cluster, Partitions, PartitionView, TopicView
from aioproducer.errors import (
    BrokerConnectionError,
    DeliveryTimeoutError,
    KafkaError,
    Outcome,
    ProtocolError,
    UnsupportedVersionError,
)
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts
from tests.fakes.scripted_sender import Said, ScriptedSender, response

WITH_HINTS = 10  # the first version of Produce whose responses name the new leader (KIP-951)


def answer(leader_id: int, leader_epoch: int) -> memoryview:
    hint = b"\x01\x00\x09" + struct.pack(">ii", leader_id, leader_epoch) + b"\x00"
    partition = struct.pack(">ihqqq", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1) + b"\x01\x00" + hint
    return memoryview(b"\x02\x02t\x02" + partition + b"\x00" + struct.pack(">i", 0) + b"\x00")


def sent(**options: float) -> tuple[ScriptedSender, Delivery]:
    """A sender with one record on the wire, to node 1, and what its caller has."""
    script = ScriptedSender(**options)
    delivery = script.core.send(b"v")
    script.turn()
    return script, delivery


def test_record_is_sent_and_acknowledged() -> None:
    script, delivery = sent()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 41)})

    assert delivery.result().offset == 41
    assert script.core.pool.available_bytes == script.core.pool.total_bytes


def test_one_request_takes_batches_of_many_partitions() -> None:
    script = ScriptedSender(leaders=[1] * 10)
    deliveries = [script.core.send(b"v", partition=number) for number in range(10)]
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {number: (0, number) for number in range(10)})

    assert [delivery.result().offset for delivery in deliveries] == list(range(10))


def test_node_that_is_not_ready_is_sent_nothing() -> None:
    script = ScriptedSender()
    script.client.connections[1] = 0
    script.core.send(b"v")
    script.turn()
    assert script.in_flight() == 0

    script.client.connections[1] = 5
    script.turn()

    assert script.in_flight() == 1


def test_missing_leader_is_asked_for() -> None:
    script = ScriptedSender(leaders=[-1])
    script.core.send(b"v")
    script.turn()

    assert (script.metadata.added, script.metadata.reasons) == (["t"], ["no_leader"])


def test_missing_producer_id_is_asked_for() -> None:
    """An unstamped batch would be written without protection."""
    script = ScriptedSender()
    script.core.identity.discard(7)
    script.core.send(b"v")
    script.turn()

    assert (script.ids_asked, script.in_flight()) == (1, 0)


def test_confirmed_partition_has_five_requests_in_flight() -> None:
    """Before the first acknowledgement it has one."""
    script = ScriptedSender(batch_size=0)
    for _ in range(8):
        script.core.send(b"v")
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 0)})

    assert script.in_flight() == 5


def test_partition_left_out_of_the_response_is_resent() -> None:
    """The connection to the node is closed; aiokafka waits without end."""
    script = ScriptedSender(leaders=[1, 1])
    deliveries = [script.core.send(b"v", partition=number) for number in (0, 1)]
    script.turn()
    script.answer(1, {0: (0, 3)})
    assert script.client.disconnected == [1]
    assert (deliveries[0].done(), deliveries[1].done()) == (True, False)

    script.turn(seconds=1)
    script.answer(1, {1: (0, 4)})

    assert deliveries[1].result().offset == 4


def test_unreadable_response_raises() -> None:
    """The connection closes on the error, and the request is lost and sent again."""
    script, delivery = sent()
    [request] = script.client.requests[1]
    with pytest.raises(ProtocolError):
        request.on_end(Answered(memoryview(b"\x00\x00"), script.core.now))
    script.lose(1)
    script.turn(seconds=1)

    script.answer(1, {0: (0, 9)})

    assert delivery.result().offset == 9


def test_refused_version_leads_to_a_new_connection() -> None:
    """The batch is sent again in the version of the new connection."""
    script, delivery = sent()
    script.answer(1, {0: ErrorCode.UNSUPPORTED_VERSION})
    assert script.client.retired == [1]

    script.turn(seconds=1)
    script.answer(1, {0: (0, 7)})

    assert delivery.result().offset == 7


def test_throttle_time_is_passed_on() -> None:
    script, _ = sent()

    script.answer(1, {0: (0, 0)}, throttle_ms=250)

    assert script.client.throttled == [(1, 250)]


def test_lost_requests_are_resent_in_order() -> None:
    """One request is in flight until the first is acknowledged on the new connection."""
    script = ScriptedSender(batch_size=0)
    script.confirm()
    deliveries = [script.core.send(b"%d" % number) for number in range(4)]
    script.turn()
    assert script.in_flight() == 4

    script.lose(1)
    script.turn(seconds=1)
    assert script.in_flight() == 1
    for offset in range(4):
        script.answer(1, {0: (0, 1 + offset)})

    assert [delivery.result().offset for delivery in deliveries] == [1, 2, 3, 4]


def test_request_never_handed_over_is_not_written() -> None:
    """A record of such a request is known not to be written when its time is over."""
    script = ScriptedSender(delivery_timeout_s=10)
    delivery = script.core.send(b"v")
    script.turn()
    script.leave_unsent(1)
    script.turn(seconds=10)

    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.NOT_WRITTEN


def test_request_never_handed_over_is_no_attempt() -> None:
    script = ScriptedSender(retries=0)
    delivery = script.core.send(b"v")
    script.turn()
    script.leave_unsent(1)
    script.turn(seconds=1)
    assert script.settlement.counts.records_retried == 0

    script.answer(1, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert error.attempts == 1


def test_use_of_the_last_epoch_wakes_the_sender() -> None:
    """The sender must ask for another producer id before the next record comes."""
    script = ScriptedSender()
    script.core.identity.assign(7, LAST_EPOCH)
    script.core.send(b"v")
    script.turn()
    request = script.client.requests[1].pop()

    request.on_end(Answered(memoryview(response({0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})), script.core.now))

    assert script.core.identity.is_missing
    assert script.wakeup.is_set
    script.turn()
    assert script.ids_asked == 1


def test_missing_common_version_fails_records_at_once() -> None:
    script = ScriptedSender()
    script.client.version_error = UnsupportedVersionError("too old")
    delivery = script.core.send(b"v")
    script.turn()

    error = delivery.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert error.outcome is Outcome.NOT_WRITTEN


def test_overdue_batch_on_the_wire_keeps_its_memory() -> None:
    """The delivery fails, but the transport may still read the memory."""
    script, delivery = sent(delivery_timeout_s=10)
    script.turn(seconds=10)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.UNKNOWN
    assert script.core.pool.lent_bytes > 0

    script.answer(1, {0: (0, 0)})

    assert script.core.pool.lent_bytes == 0


def test_new_epoch_waits_for_the_late_response() -> None:
    """Until the late response comes, the old sequence may still be written."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.confirm()
    script.core.send(b"late")
    script.turn()
    script.turn(seconds=10)
    delivery = script.core.send(b"next")
    script.turn()
    assert script.in_flight() == 1

    script.answer(1, {0: (0, 1)})
    assert script.in_flight() == 1
    script.answer(1, {0: (0, 2)})

    assert delivery.result().offset == 2
    assert script.core.partition().identity.epoch == 1


def test_deadline_holds_after_a_busy_time() -> None:
    """The deadline of a later batch is watched too; aiokafka forgets it."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.confirm()
    script.turn(seconds=9)
    script.client.connections[1] = 0
    delivery = script.core.send(b"v")
    script.turn(seconds=1)
    assert not delivery.done()

    script.turn(seconds=9)

    assert isinstance(delivery.exception(), DeliveryTimeoutError)


def test_memory_of_overdue_batches_is_lent_in_the_same_turn() -> None:
    """No other event may cause a turn for a long time."""
    script = ScriptedSender(delivery_timeout_s=10)
    script.client.connections[1] = 0
    pool = script.core.pool
    held = [
        pool.try_lend(pool.total_bytes * 3 // 4, None),
        pool.try_lend(pool.total_bytes // 4 - SMALLEST_CHUNK, script.core.node(1).reserve),
    ]
    overdue = script.core.send(b"v")
    script.turn(seconds=5)
    waiting = script.core.wait_in_queue()
    assert None not in held
    assert pool.available_bytes == 0

    script.turn(seconds=5)

    assert overdue.done()
    assert not waiting.is_waiting


def test_acks_0_completes_when_written() -> None:
    """A request that is lost before it is written has an unknown outcome."""
    script = ScriptedSender(acks=0, idempotent=False)
    first, second = script.core.send(b"1"), None
    script.turn()
    script.client.requests[1].pop(0).on_end(WRITTEN)
    second = script.core.send(b"2")
    script.turn()
    script.lose(1)

    assert first.result().offset == -1
    error = second.exception()
    assert isinstance(error, KafkaError)
    assert error.outcome is Outcome.UNKNOWN


def test_fatal_response_is_reported_once() -> None:
    """Nothing that this producer sends later can succeed."""
    script, delivery = sent()

    script.answer(1, {0: ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

    assert delivery.exception() is not None
    assert len(script.fatal) == 1


def test_known_new_leader_ends_the_pause_before_a_retry() -> None:
    """The pause is for the node that refused (KAFKA-15415)."""
    script, _ = sent()
    script.core.lead([2], epoch=1)

    script.answer(1, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER})

    assert script.in_flight(2) == 1


def test_defect_in_applying_a_response_fails_its_batch() -> None:
    """The other batches fail with the producer."""
    script = ScriptedSender()
    del script.metadata.reasons  # asking for metadata fails
    delivery = script.core.send(b"v")
    script.turn()

    script.answer(1, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER})

    error = delivery.exception()
    assert isinstance(error, KafkaError)
    assert error.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("end", ["deadline", "close"])
def test_overtaken_batch_ends_once(end: str) -> None:
    """The batch waits for a new epoch behind an ambiguous batch, and both are given up."""
    script = ScriptedSender(batch_size=0, delivery_timeout_s=10)
    script.confirm()
    deliveries = [script.core.send(b"v") for _ in range(4)]
    script.turn()
    said_of_each: list[Said] = [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        (0, 3),
        ErrorCode.MESSAGE_TOO_LARGE,
    ]
    for said in said_of_each:
        script.answer(1, {0: said})
    script.client.connections[1] = 0

    if end == "close":
        script.settlement.fail_everything(KafkaError("closed"), script.core.now)
    script.turn(seconds=10)

    outcomes = [getattr(delivery.exception(), "outcome", None) for delivery in deliveries]
    assert outcomes == [Outcome.UNKNOWN, Outcome.NOT_WRITTEN, None, Outcome.NOT_WRITTEN]


@pytest.mark.parametrize("partitions", [10, 10_000])
def test_turn_sends_only_the_partition_with_a_batch(partitions: int) -> None:
    """Idle partitions add nothing to the request."""
    script = ScriptedSender(leaders=[1] * partitions)
    delivery = script.core.send(b"v", partition=3)
    script.turn()

    [request] = script.client.requests[1]
    request.on_end(Answered(memoryview(response({3: (0, 41)})), script.core.now))
    assert delivery.result().offset == 41
    assert script.client.disconnected == []  # as it would be for a partition without a response


def test_written_request_wakes_the_sender() -> None:
    """With `acks=0` no response comes that could wake the sender."""
    script = ScriptedSender(leaders=(1, 1), acks=0, idempotent=False)
    script.core.send(b"v", partition=0)
    script.turn()
    script.client.connections[1] = 0
    script.core.send(b"v", partition=1)
    script.turn()
    [request] = script.client.requests[1]
    assert not script.wakeup.is_set

    request.on_end(WRITTEN)

    assert script.wakeup.is_set


def test_hint_that_names_node_0_is_taken() -> None:
    """The ids of brokers begin at 0, so 0 is not "no leader"."""
    script = ScriptedSender()
    script.client.version = WITH_HINTS
    script.core.send(b"v")
    script.turn()

    script.client.requests[1].pop(0).on_end(Answered(answer(leader_id=0, leader_epoch=8), script.core.now))

    assert script.metadata.hints == {TopicPartition("t", 0): PartitionView(0, 8)}


# Texts of errors


def test_deadline_error_has_the_last_broker_error() -> None:
    script, delivery = sent(delivery_timeout_s=1)
    script.answer(1, {0: ErrorCode.NOT_ENOUGH_REPLICAS})
    script.client.connections[1] = 0
    script.turn(seconds=1)

    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.outcome is Outcome.NOT_WRITTEN
    assert "within delivery_timeout_ms=1000 after 1 attempt: " in str(error)
    assert "min.insync.replicas" in str(error)
    assert error.last_broker_error is not None


def test_deadline_error_names_the_node_of_the_request() -> None:
    """Another node leads by now, which was never sent to."""
    script, delivery = sent(delivery_timeout_s=10)
    script.core.lead([2], epoch=1)
    script.turn(seconds=10)

    assert "node 1 has not answered" in str(delivery.exception())


def test_error_of_a_missing_partition_response_says_so() -> None:
    """An earlier attempt lost its connection; this one did not."""
    script, delivery = sent(delivery_timeout_s=100, retries=1)
    script.lose(1)
    script.turn(seconds=1)
    script.answer(1, {})

    error = delivery.exception()
    assert isinstance(error, BrokerConnectionError)
    assert "does not say what became of the batch" in str(error)
    assert isinstance(error.last_broker_error, ProtocolError)


def test_missing_common_version_keeps_an_unknown_outcome() -> None:
    """The node was replaced by an older one: the first attempt may have been written."""
    script, delivery = sent()
    script.lose(1)
    script.client.version_error = UnsupportedVersionError("too old")
    script.turn(seconds=5)

    error = delivery.exception()
    assert isinstance(error, UnsupportedVersionError)
    assert error.outcome is Outcome.UNKNOWN


# Requests: which part of a response belongs to which batch


def answering(*said: tuple[int, int, int]) -> memoryview:
    """The answer to Produce 8 with these entries of topic t: partition, code, base offset; in this order."""
    body = struct.pack(">ih1si", 1, 1, b"t", len(said))
    for partition, code, base_offset in said:
        body += struct.pack(">ihqqqih", partition, code, base_offset, -1, 0, 0, -1)
    return memoryview(body + struct.pack(">i", 0))


@pytest.mark.parametrize(
    "second", [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (0, 0, 99)], ids=["refused", "written elsewhere"]
)
def test_first_of_two_answers_for_a_partition_counts(second: tuple[int, int, int]) -> None:
    """A batch ends once: what its caller was told stays so, and nothing is sent again."""
    script, delivery = sent()
    request = script.client.requests[1].pop()

    request.on_end(Answered(answering((0, 0, 7), second, (5, 0, 3)), script.core.now))
    script.turn(seconds=5)

    assert delivery.result().offset == 7
    assert (script.in_flight(), script.fatal, script.client.disconnected) == (0, [], [])


def test_refusal_before_an_acknowledgement_is_tried_again() -> None:
    """The first counts; a copy of a written batch is recognised by its sequence."""
    script, delivery = sent()
    request = script.client.requests[1].pop()

    request.on_end(Answered(answering((0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (0, 0, 7)), script.core.now))
    script.turn(seconds=5)

    assert (delivery.done(), script.in_flight()) == (False, 1)


def test_produce_request_has_all_that_a_request_has() -> None:
    """It sets the attributes itself: one that is missing would end the producer with the first record."""
    core = CoreParts()
    core.send(b"v")
    core.flush()
    [batch] = core.drain()
    request = ProduceRequest(core.node(1), [batch], Cluster(), lambda *_: None)

    request.encode(9, acks=-1, timeout_ms=1)

    assert [name for name in OutgoingRequest.__slots__ if not hasattr(request, name)] == []
    assert repr(request) == "<ProduceRequest node=1 batches=1 records=1>"


@pytest.mark.parametrize("known", [("t", "u"), ("t",), ()], ids=["both", "one", "none"])
def test_topics_are_named_as_long_as_the_id_of_one_is_not_known(known: tuple[str, ...]) -> None:
    """From version 13 on there are ids alone, and the zero id is no topic's."""
    views = {topic: TopicView(topic, topic.encode() * 16, Partitions.of([PartitionView(1, 0)]), 0) for topic in known}
    cluster = replace(Cluster(), topics=MappingProxyType(views))
    core = CoreParts()
    batches = [
        SimpleNamespace(
            count=1, partition=Partition(Topic(topic, is_adaptive=True), 0, core.partition().identity, max_in_flight=5)
        )
        for topic in ("t", "u")
    ]

    # as much of node and batches as is looked at
    request = ProduceRequest(1, batches, cluster, lambda *_: None)  # type: ignore[arg-type]

    assert (request.highest_version > LAST_VERSION_BY_NAME) is (known == ("t", "u"))
