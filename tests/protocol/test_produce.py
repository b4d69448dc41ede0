"""Produce by hand: equal to what Kafka's own description of the message makes of it, and safe against anything."""

import importlib
import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from aioproducer._accumulator.producer_identity import BatchIdentity
from aioproducer._native.append import RecordBatchBuilder
from aioproducer._native.produce import encode_header, plain_response
from aioproducer._protocol.primitives import NO_TOPIC_ID, array_length, string
from aioproducer._protocol.produce import (
    NodeEndpoint,
    PartitionResponse,
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
    request_is_flexible,
)
from aioproducer.errors import ProtocolError
from aioproducer.records import TopicPartition
from tests.native.prepared_batches import prepared_batch
from tests.reference.record_batch import Batch, Record, encode_batch

VERSIONS = range(3, 14)
ID_A, ID_B = uuid.UUID(int=1), uuid.UUID(int=2)
TOPIC_IDS = {"a": ID_A.bytes, "b": ID_B.bytes}


def batch(topic: str, partition: int, records: bytes = b"records") -> RecordBatchBuilder:
    return prepared_batch(records, 1, topic_partition=TopicPartition(topic, partition))


def whole(batch: RecordBatchBuilder) -> bytes:
    return encode_header(batch) + bytes(batch.records())


def plain_answer(index: int, offset: int, *, version: int, code: int = 0) -> bytes:
    answer = struct.pack(">ihqq", index, code, offset, -1)
    answer += struct.pack(">q", 0) if version >= 5 else b""
    if version >= 9:
        return answer + b"\x01\x00\x00"
    return answer + (struct.pack(">ih", 0, -1) if version >= 8 else b"")


def whole_answer(version: int, *partitions: bytes) -> bytes:
    if version < 9:
        body = b"".join(partitions)
        return struct.pack(">ih", 1, 1) + b"a" + struct.pack(">i", len(partitions)) + body + struct.pack(">i", 7)
    name = ID_A.bytes if version >= 13 else b"\x02a"
    return (
        b"\x02" + name + bytes((len(partitions) + 1,)) + b"".join(partitions) + b"\x00" + struct.pack(">i", 7) + b"\x00"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_request_is_what_kafka_describes(version: int) -> None:
    """Read back by the generated decoder, topics are grouped and every byte is accounted for."""
    batches = {"a": [batch("a", 0), batch("a", 1, b"x" * 65)], "b": [batch("b", 7, b"x" * 300)]}

    request = b"".join(
        encode_produce_request(
            version, acks=-1, timeout_ms=20_000, transactional_id="tx", batches=batches, topic_ids=TOPIC_IDS
        )
    )

    kind = importlib.import_module(f"kio.schema.produce.v{version}").ProduceRequest
    read, size = entity_reader(kind)(request, 0)
    topics = [topic.topic_id if version >= 13 else topic.name for topic in read.topic_data]
    records = [[(each.index, each.records) for each in topic.partition_data] for topic in read.topic_data]
    assert size == len(request)
    assert (read.transactional_id, read.acks, read.timeout.total_seconds()) == ("tx", -1, 20)
    assert topics == ([ID_A, ID_B] if version >= 13 else ["a", "b"])
    assert records == [
        [(each.result.topic_partition.partition, whole(each)) for each in of_topic] for of_topic in batches.values()
    ]


@pytest.mark.parametrize("size", [5, 3000], ids=["copied", "as a view"])
@pytest.mark.parametrize("version", [3, 13])
def test_batch_in_a_request_is_that_of_the_reference(version: int, size: int) -> None:
    """Of a producer with an identity, compressed, and somewhere in its chunk, as a part of a split batch is."""
    records = (Record(None, b"v" * size, 1_000), Record(b"k", b"w", 1_007))
    expected = encode_batch(
        Batch(records, producer_id=77, producer_epoch=5, base_sequence=9, transactional=True, codec=1),
        compress=lambda section: section[::-1],
    )
    prepared = prepared_batch(
        expected[61:],
        2,
        base_timestamp=1_000,
        max_timestamp=1_007,
        identity=BatchIdentity(77, 5, 9, is_transactional=True),
        compression=1,
        start=100,
        topic_partition=TopicPartition("a", 3),
    )

    pieces = encode_produce_request(
        version, acks=-1, timeout_ms=1, transactional_id="tx", batches={"a": [prepared]}, topic_ids=TOPIC_IDS
    )

    assert expected in b"".join(pieces)
    assert any(isinstance(piece, memoryview) for piece in pieces) is (size > 1024)


def test_records_are_passed_on_uncopied() -> None:
    """Views of the batches' own memory, each behind its glue and header; small ones are copied there."""
    batches = {"a": [batch("a", 0, b"x" * 1025)], "b": [batch("b", 0, b"y" * 1024), batch("b", 1, b"z" * 4096)]}

    pieces = encode_produce_request(
        13, acks=1, timeout_ms=1, transactional_id=None, batches=batches, topic_ids=TOPIC_IDS
    )

    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert [view.obj for view in views] == [batches["a"][0].chunk, batches["b"][1].chunk]
    assert views == [b"x" * 1025, b"z" * 4096]
    assert pieces[2].endswith(b"y" * 1024)


def test_no_topic_id_is_sixteen_zeros() -> None:
    """Kafka's value for none."""
    assert bytes(16) == NO_TOPIC_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_answer_is_read(version: int) -> None:
    payload = whole_answer(version, plain_answer(0, 42, version=version), plain_answer(3, -1, version=version, code=6))

    response = decode_produce_response(version, memoryview(payload))

    name, topic_id = (None, ID_A.bytes) if version >= 13 else ("a", None)
    log_start = 0 if version >= 5 else -1
    assert response.throttle_time_ms == 7
    assert response.nodes == {}
    assert response.partitions == [
        PartitionResponse(name, topic_id, 0, 0, 42, -1, log_start, (), None, -1, -1),
        PartitionResponse(name, topic_id, 3, 6, -1, -1, log_start, (), None, -1, -1),
    ]


@pytest.mark.parametrize("version", [each for each in VERSIONS if each >= 9])
def test_plain_answer_about_one_partition_is_read_in_one_step(version: int) -> None:
    payload = whole_answer(version, plain_answer(5, 42, version=version, code=6))

    name, topic_id = (None, ID_A.bytes) if version >= 13 else ("a", None)
    assert plain_response(payload, version >= 13) == (7, (name, topic_id, 5, 6, 42, -1, 0, (), None, -1, -1))


int64s = st.integers(-1, 2**63 - 1)


@given(
    version=st.sampled_from(VERSIONS),
    name=st.text("ab\u00e9", min_size=1, max_size=130),
    fixed=st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 120), int64s, int64s, int64s),
)
@settings(deadline=None)
def test_lone_partition_is_read_as_one_among_others(version: int, name: str, fixed: tuple[int, ...]) -> None:
    row = struct.pack(">ihqqq" if version >= 5 else ">ihqq", *fixed[: 5 if version >= 5 else 4])
    row += b"\x01\x00\x00" if version >= 9 else struct.pack(">ih", 0, -1) if version >= 8 else b""

    alone, first = (
        decode_produce_response(version, renamed(version, whole_answer(version, *rows), name))
        for rows in ((row,), (row, plain_answer(3, 7, version=version)))
    )

    assert alone.partitions == first.partitions[:1]
    assert (alone.throttle_time_ms, alone.nodes) == (first.throttle_time_ms, first.nodes)
    assert alone.partitions[0].topic == (None if version >= 13 else name)


def renamed(version: int, answer: bytes, name: str) -> bytes:
    """An answer about topic "a", about another one; from version 13 on there is no name."""
    text = string(name, flexible=version >= 9)
    start = 1 if version >= 9 else 4
    return (
        answer if version >= 13 else answer[:start] + text + answer[start + len(string("a", flexible=version >= 9)) :]
    )


@pytest.mark.parametrize("version", [9, 12, 13])
def test_damaged_partition_is_refused_or_read_as_written(version: int) -> None:
    payload = whole_answer(version, plain_answer(2, 40, version=version))
    record_errors = len(payload) - struct.calcsize(">bbbbix")  # before message, two ends, throttle time, end
    for position in range(len(payload)):
        for value in range(256):
            damaged = payload[:position] + bytes((value,)) + payload[position + 1 :]
            try:
                response = decode_produce_response(version, damaged)
            except ProtocolError:
                continue
            is_null = (position, value) == (record_errors, 0)
            assert written_again(version, response) == (payload if is_null else damaged)


def written_again(version: int, response: ProduceResponse) -> bytes:
    [answer] = response.partitions
    topic = answer.topic_id if version >= 13 else string(answer.topic, flexible=True)
    return (
        b"\x02"
        + (topic or b"")
        + b"\x02"
        + struct.pack(">ihqqq", *answer[2:7])
        + b"\x01"
        + string(answer.error_message, flexible=True)
        + b"\x00\x00"
        + struct.pack(">ix", response.throttle_time_ms)
    )


def test_record_errors_are_read() -> None:
    flexible = (
        struct.pack(">ihqqq", 0, 87, -1, -1, -1) + b"\x02" + struct.pack(">i", 5) + b"\x04bad\x00" + b"\x04all\x00"
    )
    plain = (
        struct.pack(">ihqqq", 0, 87, -1, -1, -1) + struct.pack(">iih", 1, 5, 3) + b"bad" + struct.pack(">h", 3) + b"all"
    )

    for version, partition in ((9, flexible), (8, plain)):
        (answer,) = decode_produce_response(version, whole_answer(version, partition)).partitions
        assert (answer.record_errors, answer.error_message) == (((5, "bad"),), "all")


@pytest.mark.parametrize("version", [8, 9])
def test_record_errors_are_read_however_many_are_alike(version: int) -> None:
    """Some in a row for one reason, some for another, some for none; the last at the end of the frame."""
    reasons = [None, None, "bad", "bad", "bad", "sad", "bad", None, "worse", "worse"]
    flexible = version >= 9
    head = struct.pack(">ihqqq", 0, 87, -1, -1, -1)
    rows = b"".join(
        struct.pack(">i", index) + string(reason, flexible=flexible) + (b"\x00" if flexible else b"")
        for index, reason in enumerate(reasons)
    )
    end = string(None, flexible=flexible) + (b"\x00" if flexible else b"")
    partition = head + array_length(len(reasons), flexible=flexible) + rows + end

    (answer,) = decode_produce_response(version, whole_answer(version, partition)).partitions

    assert answer.record_errors == tuple(enumerate(reasons))


def test_record_errors_end_where_their_number_says() -> None:
    """Errors without a message are as long as what follows them, and look the same."""
    rows = b"".join(struct.pack(">ixx", index) for index in (0, 2))
    partition = struct.pack(">ihqqq", 0, 87, -1, -1, -1) + b"\x03" + rows + b"\x00\x00"

    (answer,) = decode_produce_response(9, whole_answer(9, partition)).partitions

    assert (answer.record_errors, answer.error_message) == (((0, None), (2, None)), None)


def test_fields_of_newer_brokers_are_passed_over() -> None:
    partition = struct.pack(">ihqqq", 0, 87, -1, -1, -1) + b"\x02" + struct.pack(">i", 5) + b"\x04bad\x01\x07\x02xy"

    (answer,) = decode_produce_response(9, whole_answer(9, partition + b"\x00\x00")).partitions

    assert (answer.record_errors, answer.error_message) == (((5, "bad"),), None)


def test_new_leader_and_its_address_are_read() -> None:
    """KIP-951: in tagged fields, among unknown ones."""
    hint = b"\x02" + b"\x00\x09" + struct.pack(">ii", 2, 8) + b"\x00" + b"\x05\x01x"
    partition = struct.pack(">ihqqq", 0, 6, -1, -1, -1) + b"\x01\x00" + hint
    node = struct.pack(">i", 2) + b"\x05host" + struct.pack(">i", 9092) + b"\x00\x00"
    nodes = b"\x02" + b"\x00" + bytes((len(node) + 1,)) + b"\x02" + node + b"\x05\x01x"
    payload = whole_answer(12, partition)[:-1] + nodes

    response = decode_produce_response(12, payload)

    assert (response.partitions[0].leader_id, response.partitions[0].leader_epoch) == (2, 8)
    assert response.nodes == {2: NodeEndpoint("host", 9092, None)}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x02",
        whole_answer(13, plain_answer(0, 1, version=13)) + b"\x00",
        whole_answer(13, plain_answer(0, 1, version=13))[:-1],
        whole_answer(13, plain_answer(0, -2, version=13)),
        b"\xff\xff\xff\xff\x0f" + bytes(50),
        b"\xff\xff\xff\xff\xff\x0f" + bytes(50),
        whole_answer(13, plain_answer(0, 1, version=13)[:-1] + b"\x01\x00\x02\x00\x00" + bytes(8)),
        whole_answer(13, plain_answer(0, 1, version=13))[:10],
    ],
    ids=["empty", "short", "long", "cut", "offset", "count", "varint", "tag", "id"],
)
def test_invalid_answer_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="Produce v13"):
        decode_produce_response(13, payload)


@given(st.sampled_from(list(VERSIONS)), st.binary(max_size=200))
@settings(max_examples=500)
def test_garbage_never_gets_through_as_another_error(version: int, payload: bytes) -> None:
    try:
        response = decode_produce_response(version, payload)
    except ProtocolError:
        return
    assert len(response.partitions) <= len(payload)


@pytest.mark.parametrize("version", VERSIONS)
def test_flexible_from_version_9(version: int) -> None:
    """KIP-482."""
    assert request_is_flexible(version) is (version >= 9)
