"""Requests beside Produce as Kafka describes them in every version, and answers: their fields and largest sizes."""

import contextlib
import datetime as dt
import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from aioproducer._protocol.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    SMALL_RESPONSE,
    MetadataResponse,
    Node,
    ProducerIdResponse,
    TopicView,
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
    encode_api_versions_request,
    encode_init_producer_id_request,
    encode_metadata_request,
    largest_response,
)
from aioproducer._protocol.partition_views import NO_EPOCH, Partitions, PartitionView
from aioproducer._protocol.primitives import Response, array_length, unsigned_varint
from aioproducer._protocol.produce import PartitionResponse, ProduceResponse, largest_produce_response
from aioproducer._protocol.telemetry_messages import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from aioproducer._protocol.transaction_admin_messages import (
    LIST_TRANSACTIONS,
    MarkersResponse,
    PartitionProducers,
    ProducersResponse,
    TransactionDescription,
    TransactionsResponse,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    CodeResponse,
    CoordinatorResponse,
    EndTxnResponse,
    FetchedOffset,
    OffsetsResponse,
    PartitionResult,
    PartitionsResponse,
)
from aioproducer.errors import ProtocolError
from tests.fakes.scripted_broker import api_versions_body, metadata_body
from tests.testing.kio_classes import module_of, read, written

ID = uuid.UUID(int=7)

DECODERS: dict[str, Callable[[int, bytes], object]] = {
    "api_versions": decode_api_versions_response,
    "metadata": lambda version, payload: decode_metadata_response(version, payload, from_node=1),
    "init_producer_id": decode_init_producer_id_response,
}


def read_by_kio(message: str, name: str, *, version: int, data: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The generated decoder's view of a request; it must take every byte."""
    entity = read(getattr(module_of(message, version, "request"), name), data)
    assert written(entity) == data
    return entity


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_request_is_what_kafka_describes(version: int) -> None:
    data = encode_metadata_request(version, ["a", "bb"], allow_auto_topic_creation=False)

    entity = read_by_kio("metadata", "MetadataRequest", version=version, data=data)

    assert [topic.name for topic in entity.topics] == ["a", "bb"]
    assert entity.allow_auto_topic_creation is False


@pytest.mark.parametrize("version", range(6))
def test_producer_id_request_is_what_kafka_describes(version: int) -> None:
    entity = read_by_kio(
        "init_producer_id", "InitProducerIdRequest", version=version, data=encode_init_producer_id_request(version)
    )

    assert entity.transactional_id is None


@pytest.mark.parametrize("version", range(5))
def test_api_versions_request_is_what_kafka_describes(version: int) -> None:
    data = encode_api_versions_request(version, software_version="1.2")

    entity = read_by_kio("api_versions", "ApiVersionsRequest", version=version, data=data)

    if version >= 3:
        assert (entity.client_software_name, entity.client_software_version) == ("aioproducer", "1.2")


def metadata_by_kio(version: int) -> bytes:
    """An answer with two nodes and a topic of two partitions, written by the generated encoder."""
    schema = module_of("metadata", version, "response")
    no_error = {"error_code": ErrorCode.none}
    newer: dict[str, object] = {"replica_nodes": (1, 2), "isr_nodes": (1,)}
    newer |= {"leader_epoch": 4} if version >= 7 else {}
    newer |= {"offline_replicas": (2,)} if version >= 5 else {}
    partitions = tuple(
        schema.MetadataResponsePartition(partition_index=number, leader_id=leader, **no_error, **newer)
        for number, leader in ((1, 2), (0, 1))
    )
    topic_id = {"topic_id": ID} if version >= 10 else {}
    topic = schema.MetadataResponseTopic(name="a", is_internal=False, partitions=partitions, **no_error, **topic_id)
    brokers = (
        schema.MetadataResponseBroker(node_id=1, host="h1", port=9092, rack="r"),
        schema.MetadataResponseBroker(node_id=2, host="h2", port=9093, rack=None),
    )
    whole = {"throttle_time": dt.timedelta(milliseconds=5), "cluster_id": "c", "controller_id": 2}
    whole |= no_error if version >= 13 else {}
    return written(schema.MetadataResponse(brokers=brokers, topics=(topic,), **whole))


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_answer_is_read(version: int) -> None:
    answer = decode_metadata_response(version, metadata_by_kio(version), from_node=9)

    epoch = 4 if version >= 7 else NO_EPOCH
    assert answer.from_node == 9
    assert answer.nodes == (Node(1, "h1", 9092, "r"), Node(2, "h2", 9093, None))
    assert (answer.cluster_id, answer.controller_id, answer.throttle_time_ms) == ("c", 2, 5)
    assert answer.topics[0].partitions == (PartitionView(1, epoch), PartitionView(2, epoch))
    assert answer.topics[0].topic_id == (ID.bytes if version >= 10 else bytes(16))


def test_partition_numbers_that_cannot_be_are_left_out() -> None:
    """A claimed partition 2^31 - 1 does not create two thousand million partitions."""
    body = bytearray(metadata_body([(1, "h", 1)], [(0, "a", bytes(16), [(1, 0), (1, 0)])]))
    at = body.index(struct.pack(">hiii", 0, 1, 1, 0))
    body[at : at + 6] = struct.pack(">hi", 0, 2**31 - 1)

    answer = decode_metadata_response(13, bytes(body), from_node=1)

    assert answer.topics[0].partitions == (PartitionView(1, 0), PartitionView())


def test_unknown_error_codes_are_passed_on() -> None:
    body = metadata_body([(1, "h", 1)], [(999, "a", bytes(16), []), (0, "b", bytes(16), [(1, 0)])])

    answer = decode_metadata_response(13, body, from_node=1)

    assert [topic.error_code for topic in answer.topics] == [999, 0]
    assert isinstance(answer, MetadataResponse)


def test_api_versions_answer_is_read() -> None:
    answer = decode_api_versions_response(4, api_versions_body(((0, 3, 13), (3, 0, 12))))

    assert answer.versions == {0: (3, 13), 3: (0, 12)}


def test_api_versions_answer_in_the_oldest_shape_is_read() -> None:
    answer = decode_api_versions_response(0, struct.pack(">hihhh", 35, 1, 18, 0, 2))

    assert (answer.error_code, answer.versions) == (35, {18: (0, 2)})


@given(st.sampled_from(list(DECODERS)), st.integers(4, 5), st.binary(max_size=200))
@settings(max_examples=500)
def test_garbage_never_gets_through_as_another_error(message: str, version: int, payload: bytes) -> None:
    """Any bytes give a response or a ProtocolError, and never end the process."""
    with contextlib.suppress(ProtocolError):
        DECODERS[message](4 if message == "api_versions" else version, payload)


@given(st.integers(4, 13), st.integers(0, 400), st.binary(min_size=1, max_size=8))
@settings(max_examples=500)
def test_damaged_metadata_never_gets_through_as_another_error(version: int, at: int, damage: bytes) -> None:
    payload = bytearray(metadata_by_kio(version))
    at %= len(payload)
    payload[at : at + len(damage)] = damage
    with contextlib.suppress(ProtocolError):
        decode_metadata_response(version, bytes(payload), from_node=1)


@pytest.mark.parametrize(
    "node",
    [
        Node(-1, "h", 1),
        Node(1, "", 1),
        Node(1, "h" * 256, 1),
        Node(1, "a b", 1),
        Node(1, "a\nb", 1),
        Node(1, "h", 0),
        Node(1, "h", 70_000),
        Node(1, "h", -9092),
    ],
)
def test_node_that_cannot_be_is_known_as_such(node: Node) -> None:
    """A broker's address is checked before it reaches a socket call or a log line."""
    assert not node.is_valid


@pytest.mark.parametrize(
    "value, encoded",
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (16_384, b"\x80\x80\x01"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_number_takes_a_byte_for_each_seven_bits(value: int, encoded: bytes) -> None:
    """On both sides of each step; an array's length is written plus one."""
    assert unsigned_varint(value) == encoded
    assert array_length(value - 1, flexible=True) == encoded


@pytest.mark.parametrize("value", [-1, -128])
def test_number_below_zero_is_a_defect_and_no_other_number(value: int) -> None:
    """A table indexed by a negative number would write a wrong frame."""
    with pytest.raises(ValueError, match="byte"):
        unsigned_varint(value)
    with pytest.raises(ValueError, match="byte"):
        array_length(value - 1, flexible=True)


NONE = Partitions.undescribed(0)
ODD = 35
PAUSE_MS = 7


def refused_partition(partition: int, code: int) -> PartitionResponse:
    return PartitionResponse("t", None, partition, code, -1, -1, -1, (), None, -1, -1)


ANSWERS: tuple[Response, ...] = (
    MetadataResponse(1, (), (), error_code=ODD, throttle_time_ms=PAUSE_MS),
    MetadataResponse(
        1, (), (TopicView("a", bytes(16), NONE), TopicView("t", bytes(16), NONE, ODD)), throttle_time_ms=PAUSE_MS
    ),
    ProducerIdResponse(PAUSE_MS, ODD, -1, -1),
    ProduceResponse(PAUSE_MS, [refused_partition(0, 0), refused_partition(1, ODD)], {}),
    CoordinatorResponse(PAUSE_MS, ODD, -1, "", -1),
    PartitionsResponse(PAUSE_MS, [PartitionResult("t", 0, 0), PartitionResult("t", 1, ODD)]),
    CodeResponse(PAUSE_MS, ODD),
    EndTxnResponse(PAUSE_MS, ODD),
    OffsetsResponse(PAUSE_MS, ODD, []),
    OffsetsResponse(PAUSE_MS, 0, [FetchedOffset("t", 0, 5, "", 0), FetchedOffset("t", 1, -1, "", ODD)]),
    TransactionsResponse(ODD, [], [], PAUSE_MS),
    TransactionDescription(ODD, "id", "", 0, -1, -1, -1, [], PAUSE_MS),
    ProducersResponse(PAUSE_MS, [PartitionProducers("t", 0, ODD, [])]),
    MarkersResponse([0, ODD], PAUSE_MS),
)


@pytest.mark.parametrize(
    "answer", ANSWERS, ids=[f"{number}-{type(each).__name__}" for number, each in enumerate(ANSWERS)]
)
def test_answer_reports_its_pause_and_each_of_its_codes(answer: Response) -> None:
    assert answer.throttle_time_ms == PAUSE_MS
    assert ODD in answer.error_codes


@pytest.mark.parametrize("api", [API_VERSIONS, METADATA, LIST_TRANSACTIONS])
def test_answers_that_do_not_depend_on_the_request(api: object) -> None:
    """ApiVersions is small before the broker is known; a description of the cluster has any size."""
    limit = largest_response(api.key, 1_000_000)  # type: ignore[attr-defined]  # an Api

    assert limit == (SMALL_RESPONSE if api is API_VERSIONS else None)


@pytest.mark.parametrize(
    "api", [INIT_PRODUCER_ID, FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT]
)
def test_answers_that_name_what_the_request_names(api: object) -> None:
    """A partition takes four bytes of the request, and six of the answer."""
    assert largest_response(api.key, 4_000) == SMALL_RESPONSE + 256_000  # type: ignore[attr-defined]  # an Api


def test_answer_with_committed_offsets_has_their_metadata() -> None:
    """Up to 4 KiB for each of the four bytes that a partition takes."""
    limit = largest_response(OFFSET_FETCH.key, 4_000)

    assert limit is not None
    assert limit > 1_000 * 4_096


def test_answers_to_telemetry_are_small() -> None:
    """A list of prefixes that operators have typed, however large the push was."""
    assert largest_response(GET_TELEMETRY_SUBSCRIPTIONS.key, 30) == SMALL_RESPONSE + 30 * 64
    assert largest_response(PUSH_TELEMETRY.key, 1_000_000) == SMALL_RESPONSE


def test_answer_to_produce_has_a_reason_for_each_record() -> None:
    assert largest_produce_response(1, 0) < 2 * SMALL_RESPONSE
    assert largest_produce_response(2, 10_000) > 10_000 * 1_000
