"""Produce: append, wait for copies, respond."""

import struct

import pytest

from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.log.record_batch import checksum, decode_records
from aioproducer.testing.fake_broker.topics import TopicRequest
from tests.reference.record_batch import Batch, Record, encode_batch
from tests.testing.model_network import WALL_CLOCK_MS, Answer, ModelNetwork, batch


def test_append_answers_the_base_offset() -> None:
    """Offsets count records, not batches."""
    client = ModelNetwork().client()
    client.produce("t", batch([b"a", b"b"]))

    answer = client.produce("t", batch())

    assert answer == Answer(0, 2, -1, 0, (), None)


def test_every_version_is_answered() -> None:
    client = ModelNetwork().client()
    offsets = []
    for version in range(3, 13):
        client.send_produce("t", batch(), version=version)
        (frame,) = client.frames()
        offsets.append(frame)

    assert len(offsets) == 10
    assert client.network.partition().log.end_offset == 10


def test_acks_0_gets_no_answer() -> None:
    client = ModelNetwork().client()

    client.send_produce("t", batch(), acks=0)

    assert client.frames() == []
    assert client.network.partition().log.end_offset == 1


def test_acks_0_closes_the_connection_when_a_partition_failed() -> None:
    """Without a response there is no other way to report the failure."""
    client = ModelNetwork().client()

    client.send_produce("missing", batch(), acks=0)

    assert client.closed_because == "acks=0 and error 3"


def test_wrong_broker_names_the_leader() -> None:
    """Since version 10 the response has node and epoch of the leader (KIP-951)."""
    network = ModelNetwork(2)
    network.partition().move_leader(2, network.now)

    answer = network.client(1).produce("t", batch())

    assert answer == Answer(6, -1, -1, -1, (), (2, 1))


@pytest.mark.parametrize("racks, rack", [({2: "b"}, "b"), ({}, None)])
def test_wrong_broker_names_the_rack_of_the_leader(racks: dict[int, str], rack: str | None) -> None:
    """As Metadata does: a client that follows the response must not forget it."""
    network = ModelNetwork(2, racks=racks)
    network.partition().move_leader(2, network.now)
    client = network.client(1)

    client.send_produce("t", batch(), acks=-1, version=10)

    [node] = client.answer(ApiKey.PRODUCE, 10).node_endpoints
    [_, broker] = client.ask(ApiKey.METADATA, 12, topics=None).brokers
    assert (node.node_id, node.rack, broker.rack) == (2, rack, rack)


def test_too_few_in_sync_replicas_refuses_acks_all() -> None:
    """It gets 19 before the append; acks=1 is not affected."""
    network = ModelNetwork(2, min_insync_replicas=2)
    network.model.kill(2, network.now)

    refused = network.client().produce("t", batch(), acks=-1)
    taken = network.client().produce("t", batch(), acks=1)

    assert (refused.error_code, taken.error_code) == (19, 0)
    assert network.partition().log.end_offset == 1


def test_acks_all_waits_for_the_copies() -> None:
    network = ModelNetwork(2, replication_delay_s=0.5)
    client = network.client()
    client.send_produce("t", batch())
    before = client.frames()

    network.advance(0.5)

    assert before == []
    assert client.produce_answer().error_code == 0


def test_acks_all_times_out_after_the_append() -> None:
    network = ModelNetwork(2)
    network.model.hold_replication(2, network.now, held=True)
    client = network.client()
    client.send_produce("t", batch(), timeout_ms=700)

    network.advance(0.7)

    assert client.produce_answer() == Answer(7, 0, -1, 0, (), None)


def test_isr_shrinks_while_acks_all_waits() -> None:
    network = ModelNetwork(2, min_insync_replicas=2)
    network.model.hold_replication(2, network.now, held=True)
    client = network.client()
    client.send_produce("t", batch(), timeout_ms=5000)

    network.model.kill(2, network.now)
    network.settle()

    assert client.produce_answer() == Answer(20, 0, -1, 0, (), None)


def test_leader_moves_while_acks_all_waits() -> None:
    network = ModelNetwork(3)
    for node in (2, 3):
        network.model.hold_replication(node, network.now, held=True)
    client = network.client()
    client.send_produce("t", batch())

    network.partition().move_leader(2, network.now)
    network.settle()

    assert client.produce_answer() == Answer(6, 0, -1, 0, (), (2, 1))


def test_acks_1_loses_what_was_not_copied() -> None:
    network = ModelNetwork(2)
    network.model.hold_replication(2, network.now, held=True)
    answer = network.client().produce("t", batch(), acks=1)

    network.model.kill(1, network.now)

    assert answer.error_code == 0
    assert (network.partition().leader, network.partition().log.end_offset) == (2, 0)


def test_duplicate_is_answered_with_its_first_offset() -> None:
    client = ModelNetwork().client()
    client.produce("t", batch([b"a", b"b"], identity=(9, 0, 0)))
    client.produce("t", batch(identity=(9, 0, 2)))

    answer = client.produce("t", batch([b"a", b"b"], identity=(9, 0, 0)))

    assert answer[:3] == (0, 0, WALL_CLOCK_MS)
    assert client.network.partition().log.end_offset == 3


@pytest.mark.parametrize(
    "identity, error", [((9, 0, 5), 45), ((9, 1, 3), 45), ((9, 1, 0), 0), ((9, 0, 1), 0), ((8, 0, 77), 0)]
)
def test_sequence_decides(identity: tuple[int, int, int], error: int) -> None:
    """The cases are a gap, a new epoch not at zero, a new epoch at zero, the next sequence, an unknown producer."""
    client = ModelNetwork().client()
    client.produce("t", batch(identity=(9, 0, 0)))

    assert client.produce("t", batch(identity=identity)).error_code == error


def test_producer_state_is_cut_with_the_log() -> None:
    network = ModelNetwork(2)
    client = network.client()
    client.produce("t", batch(identity=(9, 0, 0)))
    network.model.hold_replication(2, network.now, held=True)
    client.produce("t", batch(identity=(9, 0, 1)), acks=1)
    network.model.kill(1, network.now)

    answer = network.client(2).produce("t", batch(identity=(9, 0, 1)))

    assert (answer.error_code, answer.base_offset) == (0, 1)


def test_clean_restart_remembers_one_batch_a_producer() -> None:
    """The second last is then no duplicate any more, but out of order."""
    network = ModelNetwork()
    client = network.client()
    for sequence in range(2):
        client.produce("t", batch(identity=(9, 0, sequence)))
    network.model.kill(1, network.now, clean=True)
    network.model.restart(1, network.now)
    again = network.client()

    answers = [again.produce("t", batch(identity=(9, 0, sequence))).error_code for sequence in (1, 0)]

    assert answers == [0, 45]


def test_topic_with_broker_time_answers_the_time() -> None:
    network = ModelNetwork()
    client = network.client()
    timed = {"message.timestamp.type": "LogAppendTime"}
    network.model.topics.create(TopicRequest(name="timed", partitions=1, configs=timed))

    answer = client.produce("timed", batch([b"a", b"b"], timestamp=1))

    assert answer.log_append_time == WALL_CLOCK_MS
    assert [record.timestamp for record in network.partition("timed").log.records()] == [WALL_CLOCK_MS] * 2


def test_malformed_request_closes_the_connection() -> None:
    client = ModelNetwork().client()

    client.send(ApiKey.PRODUCE, 9, b"\xff\xff\xff")

    assert client.closed_because is not None
    assert client.closed_because.startswith("malformed request")


def test_header_name_that_is_no_text_is_read_as_java_reads_it() -> None:
    """Any bytes are accepted; a late record with such a header is refused as usual."""
    name = b"\xee\x80"
    record = encode_batch(Batch((Record(b"k", b"v", WALL_CLOCK_MS, (("ab", b"x"),)),)))
    damaged = bytearray(record.replace(b"ab", name))
    struct.pack_into(">I", damaged, 17, checksum(damaged))
    network = ModelNetwork()

    answer = network.client().produce("t", bytes(damaged))

    assert answer.error_code == 0
    (logged,) = network.partition().log.batches()
    assert decode_records(logged.data)[0].headers == (("\ufffd", b"x"),)
