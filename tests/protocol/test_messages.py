"""The requests beside Produce: equal to what Kafka's own descriptions make of them, in every version."""

import contextlib
import importlib
import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._protocol.api_versions import FinalizedFeatures
from aioproducer._protocol.messages import (
    MetadataResponse,
    Node,
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
    encode_api_versions_request,
    encode_init_producer_id_request,
    encode_metadata_request,
)
from aioproducer._protocol.partition_views import NO_EPOCH, PartitionView
from aioproducer.errors import ProtocolError
from tests.fakes.scripted_broker import api_versions_body, metadata_body
from tests.testing.kio_classes import read, written

ID = uuid.UUID(int=7)

DECODERS: dict[str, Callable[[int, bytes], object]] = {
    "api_versions": decode_api_versions_response,
    "metadata": lambda version, payload: decode_metadata_response(version, payload, from_node=1),
    "init_producer_id": decode_init_producer_id_response,
}


def read_by_kio(message: str, name: str, *, version: int, data: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The generated decoder's view of a request; it must take every byte."""
    kind = getattr(importlib.import_module(f"kio.schema.{message}.v{version}"), name)
    entity = read(kind, data)
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
    schema = importlib.import_module(f"kio.schema.metadata.v{version}.response")
    defaults = importlib.import_module("kio.schema.errors").ErrorCode.none
    millis = importlib.import_module("datetime").timedelta(milliseconds=5)
    epoch = {"leader_epoch": 4} if version >= 7 else {}
    offline = {"offline_replicas": (2,)} if version >= 5 else {}
    partitions = tuple(
        schema.MetadataResponsePartition(
            error_code=defaults,
            partition_index=number,
            leader_id=leader,
            replica_nodes=(1, 2),
            isr_nodes=(1,),
            **epoch,
            **offline,
        )
        for number, leader in ((1, 2), (0, 1))
    )
    topic_id = {"topic_id": ID} if version >= 10 else {}
    topic = schema.MetadataResponseTopic(
        error_code=defaults, name="a", is_internal=False, partitions=partitions, **topic_id
    )
    error = {"error_code": defaults} if version >= 13 else {}
    response = schema.MetadataResponse(
        throttle_time=millis,
        brokers=(
            schema.MetadataResponseBroker(node_id=1, host="h1", port=9092, rack="r"),
            schema.MetadataResponseBroker(node_id=2, host="h2", port=9093, rack=None),
        ),
        cluster_id="c",
        controller_id=2,
        topics=(topic,),
        **error,
    )
    return written(response)


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


@pytest.mark.parametrize("version", range(6))
def test_producer_id_answer_is_read(version: int) -> None:
    payload = struct.pack(">ihqh", 3, 0, 77, 5) + (b"\x00" if version >= 2 else b"")

    assert decode_init_producer_id_response(version, payload) == (3, 0, 77, 5)


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


def test_finalized_features_of_the_cluster_are_read() -> None:
    tags = b"\x03" + b"\x00\x01\x01" + b"\x01\x08" + (9).to_bytes(8, "big")
    tags += b"\x02\x1a\x02\x14transaction.version" + b"\x00\x02\x00\x02\x00"
    body = api_versions_body(((0, 3, 13),))
    assert body.endswith(b"\x00")

    answer = decode_api_versions_response(4, body[:-1] + tags)

    assert (answer.features_epoch, dict(answer.features)) == (9, {"transaction.version": 2})
    assert FinalizedFeatures(9, answer.features).transaction_version == 2
    assert FinalizedFeatures().transaction_version == 0
