"""The requests of transactions: equal to what Kafka's own descriptions make of them, in every version."""

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from aioproducer._protocol.api_versions import FinalizedFeatures
from aioproducer._protocol.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    Api,
    decode_api_versions_response,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    TXN_OFFSET_COMMIT,
    CodeResponse,
    CoordinatorType,
    EndTxnResponse,
    PartitionResult,
    TransactionIdentity,
    decode_add_offsets_response,
    decode_add_partitions_response,
    decode_end_txn_response,
    decode_find_coordinator_response,
    decode_find_coordinators_response,
    decode_txn_offset_commit_response,
    encode_add_offsets_request,
    encode_add_partitions_request,
    encode_end_txn_request,
    encode_find_coordinator_request,
    encode_find_coordinators_request,
    encode_txn_offset_commit_request,
)
from aioproducer.errors import ProtocolError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.testing.kio_classes import module_of, read, written

IDENTITY = TransactionIdentity("billing-1", 2**40, 7)
FIVE_MS = dt.timedelta(milliseconds=5)


def versions_of(*apis: Api) -> list[tuple[Api, int]]:
    """Every version of each that this client speaks."""
    return [(api, version) for api in apis for version in range(api.min_version, api.max_version + 1)]


def named(case: object) -> str | None:
    return case.name if isinstance(case, Api) else None


def class_name(message: str, kind: str) -> str:
    """`find_coordinator` and `Request` are `FindCoordinatorRequest`."""
    return "".join(part.capitalize() for part in message.split("_")) + kind


def read_by_kio(message: str, version: int, data: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The generated decoder's view of a request; it must take every byte, and write the same again."""
    entity = read(getattr(module_of(message, version, "request"), class_name(message, "Request")), data)
    assert written(entity) == data
    return entity


def made_by_kio(message: str, name: str, version: int, /, **fields: object) -> object:
    """A structure of an answer, with those of the fields that this version has."""
    kind = getattr(module_of(message, version, "response"), name)
    fields = {"error_code": KioErrorCode.none, "error_message": None} | fields
    there = {each.name for each in dataclasses.fields(kind)}
    return kind(**{field: value for field, value in fields.items() if field in there})


def answer_by_kio(message: str, version: int, /, **fields: object) -> bytes:
    return written(made_by_kio(message, class_name(message, "Response"), version, throttle_time=FIVE_MS, **fields))


@pytest.mark.parametrize("kind", list(CoordinatorType), ids=lambda kind: kind.name)
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_request_is_what_kafka_describes(version: int, kind: CoordinatorType) -> None:
    data = encode_find_coordinator_request(version, "billing-1", kind)

    entity = read_by_kio("find_coordinator", version, data)

    assert (entity.coordinator_keys if version >= 4 else (entity.key,)) == ("billing-1",)
    assert version == 0 or entity.key_type == kind


@pytest.mark.parametrize("version", range(4, 7))
def test_several_coordinators_are_found_at_once(version: int) -> None:
    data = encode_find_coordinators_request(["a", "b"], CoordinatorType.TRANSACTION)
    entity = read_by_kio("find_coordinator", version, data)
    assert (entity.coordinator_keys, entity.key_type) == (("a", "b"), CoordinatorType.TRANSACTION)

    places = (("a", 1, KioErrorCode.none), ("b", -1, KioErrorCode.coordinator_not_available))
    coordinators = tuple(
        made_by_kio(
            "find_coordinator", "Coordinator", version, key=key, node_id=node_id, host="h", port=9092, error_code=code
        )
        for key, node_id, code in places
    )
    found = decode_find_coordinators_response(answer_by_kio("find_coordinator", version, coordinators=coordinators))
    assert found.coordinators == {"a": (5, 0, 1, "h", 9092), "b": (5, 15, -1, "h", 9092)}
    assert (found.throttle_time_ms, found.error_codes) == (5, [0, 15])


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_answer_is_read(version: int) -> None:
    place = {"node_id": 3, "host": "h", "port": 9092, "error_message": "no reason"}
    coordinators = tuple(
        made_by_kio("find_coordinator", "Coordinator", version, key=key, **(place | {"node_id": node_id}))
        for key, node_id in (("other", 1), ("billing-1", 3))
        if version >= 4
    )
    data = answer_by_kio("find_coordinator", version, coordinators=coordinators, **place)

    answer = decode_find_coordinator_response(version, data, key="billing-1")

    assert answer == (5 if version else 0, 0, 3, "h", 9092)


def test_find_coordinator_answer_without_the_key_is_refused() -> None:
    """Else the response to one request would be taken for that to another."""
    coordinator = made_by_kio("find_coordinator", "Coordinator", 4, key="other", node_id=1, host="h", port=1)
    data = answer_by_kio("find_coordinator", 4, coordinators=(coordinator,))

    with pytest.raises(ProtocolError, match="it says nothing of 'billing-1'"):
        decode_find_coordinator_response(4, data, key="billing-1")


@pytest.mark.parametrize("version", range(7))
def test_transactional_init_producer_id_matches_kafka(version: int) -> None:
    data = encode_init_producer_id_request(
        version, transactional_id="billing-1", transaction_timeout_ms=60_000, producer_id=77, producer_epoch=5
    )

    entity = read_by_kio("init_producer_id", version, data)

    assert (entity.transactional_id, entity.transaction_timeout) == ("billing-1", dt.timedelta(minutes=1))
    assert version < 3 or (entity.producer_id, entity.producer_epoch) == (77, 5)


@pytest.mark.parametrize("version", range(7))
def test_init_producer_id_answer_is_read(version: int) -> None:
    ongoing = {"ongoing_txn_producer_id": 88, "ongoing_txn_producer_epoch": 9}
    data = answer_by_kio("init_producer_id", version, producer_id=77, producer_epoch=6, **ongoing)

    assert decode_init_producer_id_response(version, data) == (5, 0, 77, 6)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_request_is_what_kafka_describes(version: int) -> None:
    partitions = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 2)]
    data = encode_add_partitions_request(version, IDENTITY, partitions)

    entity = read_by_kio("add_partitions_to_txn", version, data)

    topics = entity.v3_and_below_topics
    assert [(topic.name, topic.partitions) for topic in topics] == [("a", (1, 2)), ("b", (0,))]
    assert entity.v3_and_below_transactional_id == "billing-1"
    assert (entity.v3_and_below_producer_id, entity.v3_and_below_producer_epoch) == IDENTITY[1:]


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_answer_is_read(version: int) -> None:
    message = "add_partitions_to_txn"
    results = tuple(
        made_by_kio(
            message, "AddPartitionsToTxnPartitionResult", version, partition_index=number, partition_error_code=code
        )
        for number, code in ((1, KioErrorCode.none), (2, KioErrorCode.topic_authorization_failed))
    )
    topic = made_by_kio(message, "AddPartitionsToTxnTopicResult", version, name="a", results_by_partition=results)
    data = answer_by_kio(message, version, results_by_topic_v3_and_below=(topic,))

    assert decode_add_partitions_response(version, data) == (5, [PartitionResult("a", 1, 0), ("a", 2, 29)])


@pytest.mark.parametrize("version", range(5))
def test_add_offsets_request_and_answer_are_what_kafka_describes(version: int) -> None:
    data = encode_add_offsets_request(version, IDENTITY, "readers")
    answer = answer_by_kio("add_offsets_to_txn", version, error_code=KioErrorCode.group_authorization_failed)

    entity = read_by_kio("add_offsets_to_txn", version, data)

    assert (entity.transactional_id, entity.producer_id, entity.producer_epoch) == IDENTITY
    assert entity.group_id == "readers"
    assert decode_add_offsets_response(version, answer) == CodeResponse(5, 30)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", range(6))
def test_end_txn_request_and_answer_are_what_kafka_describes(version: int, is_commit: bool) -> None:  # noqa: FBT001
    data = encode_end_txn_request(version, IDENTITY, is_commit=is_commit)
    answer = answer_by_kio("end_txn", version, producer_id=77, producer_epoch=8)

    entity = read_by_kio("end_txn", version, data)

    assert (entity.transactional_id, entity.producer_id, entity.producer_epoch) == IDENTITY
    assert entity.committed is is_commit
    expected = EndTxnResponse(5, 0, 77, 8) if version >= 5 else EndTxnResponse(5, 0)
    assert decode_end_txn_response(version, answer) == expected


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_request_is_what_kafka_describes(version: int) -> None:
    """Offsets by topic, and the member of the group where the version has fields for it."""
    offsets = {
        TopicPartition("a", 1): OffsetAndMetadata(2**40, "seen"),
        TopicPartition("b", 0): OffsetAndMetadata(0),
        TopicPartition("a", 2): OffsetAndMetadata(3),
    }
    member = ConsumerGroupMetadata("readers", 4, "member-1", "static-1")
    data = encode_txn_offset_commit_request(version, identity=IDENTITY, member=member, offsets=offsets)

    entity = read_by_kio("txn_offset_commit", version, data)

    found = {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.committed_metadata)
        for topic in entity.topics
        for partition in topic.partitions
    }
    assert found == offsets
    assert (entity.transactional_id, entity.producer_id, entity.producer_epoch) == IDENTITY
    assert entity.group_id == "readers"
    if version >= 3:
        assert (entity.generation_id, entity.member_id, entity.group_instance_id) == (4, "member-1", "static-1")


@pytest.mark.parametrize("version", range(3, 6))
def test_member_without_an_instance_id_names_none(version: int) -> None:
    """An empty instance id would name a static member that no group knows."""
    member = ConsumerGroupMetadata("readers", 4, "member-1")
    offsets = {TopicPartition("a", 1): OffsetAndMetadata(2**40)}
    data = encode_txn_offset_commit_request(version, identity=IDENTITY, member=member, offsets=offsets)

    entity = read_by_kio("txn_offset_commit", version, data)

    assert (entity.member_id, entity.group_instance_id) == ("member-1", None)


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_answer_is_read(version: int) -> None:
    message, code = "txn_offset_commit", KioErrorCode.illegal_generation
    partition = made_by_kio(message, "TxnOffsetCommitResponsePartition", version, partition_index=1, error_code=code)
    topic = made_by_kio(message, "TxnOffsetCommitResponseTopic", version, name="a", partitions=(partition,))
    data = answer_by_kio(message, version, topics=(topic,))

    assert decode_txn_offset_commit_response(version, data) == (5, [PartitionResult("a", 1, 22)])


def features_by_kio(version: int, **features: object) -> bytes:
    return answer_by_kio(
        "api_versions", version, api_keys=(), supported_features=(), zk_migration_ready=False, **features
    )


@pytest.mark.parametrize("version", [3, 4])
def test_finalized_features_are_read(version: int) -> None:
    levels = tuple(
        made_by_kio(
            "api_versions", "FinalizedFeatureKey", version, name=name, max_version_level=level, min_version_level=0
        )
        for name, level in (("metadata.version", 29), ("transaction.version", 2))
    )
    data = features_by_kio(version, finalized_features_epoch=12, finalized_features=levels)

    answer = decode_api_versions_response(version, data)

    assert (answer.features_epoch, answer.features) == (12, {"metadata.version": 29, "transaction.version": 2})
    assert FinalizedFeatures(12, answer.features).transaction_version == 2
    assert FinalizedFeatures().transaction_version == 0


@pytest.mark.parametrize("version", range(API_VERSIONS.max_version + 1))
def test_broker_that_says_nothing_of_features_has_none(version: int) -> None:
    data = features_by_kio(version, finalized_features_epoch=-1, finalized_features=())

    answer = decode_api_versions_response(version, data)

    assert (answer.features_epoch, answer.features) == (-1, {})


DECODERS: dict[Api, Callable[[int, bytes], object]] = {
    FIND_COORDINATOR: lambda version, payload: decode_find_coordinator_response(version, payload, key="k"),
    INIT_PRODUCER_ID: decode_init_producer_id_response,
    ADD_PARTITIONS_TO_TXN: decode_add_partitions_response,
    ADD_OFFSETS_TO_TXN: decode_add_offsets_response,
    END_TXN: decode_end_txn_response,
    TXN_OFFSET_COMMIT: decode_txn_offset_commit_response,
}


@given(st.sampled_from(versions_of(*DECODERS)), st.binary(max_size=120))
@settings(max_examples=600)
def test_garbage_never_gets_through_as_another_error(case: tuple[Api, int], payload: bytes) -> None:
    """Any bytes give a response or a ProtocolError, and never end the process."""
    api, version = case
    with contextlib.suppress(ProtocolError):
        DECODERS[api](version, payload)
