"""Requests about topics, beside `kio`, in every version."""

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from aioproducer._protocol.topic_admin_messages import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DescribedPartition,
    DescribedTopic,
    NewTopic,
    Setting,
    SettingsResponse,
    TopicResult,
    TopicResults,
    TopicsResponse,
    decode_create_topics_response,
    decode_delete_topics_response,
    decode_describe_configs_response,
    decode_topics_response,
    encode_create_topics_request,
    encode_delete_topics_request,
    encode_describe_configs_request,
)
from aioproducer.errors import ProtocolError
from aioproducer.testing import ApiKey
from tests.testing.kio_classes import module_of, read, schema, written

FIVE_MS = timedelta(milliseconds=5)
TEXT = "Topic 'orders' already exists."


def versions(api: Any) -> range:
    return range(api.min_version, api.max_version + 1)


def made(kind: Any, **fields: object) -> Any:
    """A structure with those of the fields that its version has."""
    there = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in there})


def read_whole(api: ApiKey, version: int, data: bytes) -> Any:
    entity = read(schema(api, version, "request"), data)
    assert written(entity) == data
    return entity


@pytest.mark.parametrize("settings", [{}, {"retention.ms": "1000", "cleanup.policy": "compact"}])
@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_create_topics_request_is_what_kafka_describes(version: int, settings: dict[str, str]) -> None:
    data = encode_create_topics_request(version, NewTopic("orders", 6, 3, settings), timeout_ms=4_000)

    entity = read_whole(ApiKey.CREATE_TOPICS, version, data)

    (topic,) = entity.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor, topic.assignments) == ("orders", 6, 3, ())
    assert {each.name: each.value for each in topic.configs} == settings
    assert (entity.timeout, entity.validate_only) == (timedelta(seconds=4), False)


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_create_topics_response_is_read(version: int) -> None:
    module = module_of("create_topics", version, "response")
    settings = ()
    if version >= 5:
        fields = {"name": "a", "value": "b", "read_only": False, "config_source": 1, "is_sensitive": False}
        settings = (module.CreatableTopicConfigs(**fields),)
    result = made(
        module.CreatableTopicResult,
        name="orders",
        topic_id=uuid.UUID(int=7),
        error_code=KioErrorCode.topic_already_exists,
        error_message=TEXT,
        num_partitions=-1,
        replication_factor=-1,
        configs=settings,
        topic_config_error_code=29,
    )
    data = written(module.CreateTopicsResponse(throttle_time=FIVE_MS, topics=(result,)))

    assert decode_create_topics_response(version, data) == TopicResults(5, [TopicResult("orders", 36, TEXT)])


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
def test_delete_topics_is_what_kafka_describes(version: int) -> None:
    data = encode_delete_topics_request(version, ["a", "b"], timeout_ms=4_000)
    entity = read_whole(ApiKey.DELETE_TOPICS, version, data)
    module = module_of("delete_topics", version, "response")
    code = KioErrorCode.topic_authorization_failed
    result = made(module.DeletableTopicResult, name="a", error_code=code, error_message=TEXT)
    response = written(module.DeleteTopicsResponse(throttle_time=FIVE_MS, responses=(result,)))

    found = decode_delete_topics_response(version, response)

    assert (entity.topic_names, entity.timeout) == (("a", "b"), timedelta(seconds=4))
    assert found == TopicResults(5, [TopicResult("a", 29, TEXT if version >= 5 else None)])


@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
def test_describe_configs_is_what_kafka_describes(version: int) -> None:
    (resource,) = read_whole(
        ApiKey.DESCRIBE_CONFIGS, version, encode_describe_configs_request(version, "orders")
    ).resources
    module = module_of("describe_configs", version, "response")
    synonym = module.DescribeConfigsSynonym(name="log.retention.ms", value="2", source=5)
    rows = [
        made(
            module.DescribeConfigsResourceResult,
            name=name,
            value=value,
            read_only=False,
            config_source=1,
            is_sensitive=value == "secret",
            synonyms=(synonym,),
            config_type=5,
            documentation=None,
        )
        for name, value in (("retention.ms", "1000"), ("hidden", "secret"))
    ]
    result = module.DescribeConfigsResult(
        error_code=KioErrorCode.none, error_message=None, resource_type=2, resource_name="orders", configs=tuple(rows)
    )
    response = written(module.DescribeConfigsResponse(throttle_time=FIVE_MS, results=(result,)))

    found = decode_describe_configs_response(version, response)

    assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (2, "orders", None)
    assert found == SettingsResponse(5, 0, None, [Setting("retention.ms", "1000", 1), Setting("hidden", None, 1)])


@pytest.mark.parametrize("version", range(4, 14))
def test_topics_of_metadata_are_read_with_replicas(version: int) -> None:
    module = module_of("metadata", version, "response")
    partition = made(
        module.MetadataResponsePartition,
        error_code=KioErrorCode.none,
        partition_index=0,
        leader_id=2,
        leader_epoch=9,
        replica_nodes=(2, 1, 3),
        isr_nodes=(2, 1),
        offline_replicas=(3,),
    )
    topic = made(
        module.MetadataResponseTopic,
        error_code=KioErrorCode.none,
        name="orders",
        topic_id=uuid.UUID(int=7),
        is_internal=True,
        partitions=(partition,),
        topic_authorized_operations=0,
    )
    broker = module.MetadataResponseBroker(node_id=1, host="h", port=9092, rack="r")
    data = written(
        made(
            module.MetadataResponse,
            throttle_time=FIVE_MS,
            brokers=(broker,),
            cluster_id="c",
            controller_id=1,
            topics=(topic,),
            cluster_authorized_operations=0,
            error_code=KioErrorCode.none,
        )
    )

    expected = DescribedTopic("orders", 0, True, [DescribedPartition(0, 2, [2, 1, 3], [2, 1])])
    assert decode_topics_response(version, data) == TopicsResponse(5, 0, [expected])


@pytest.mark.parametrize(
    "decode",
    [
        decode_create_topics_response,
        decode_delete_topics_response,
        decode_describe_configs_response,
        decode_topics_response,
    ],
)
@pytest.mark.parametrize("data", [b"", b"\x05", b"\x00" * 4 + b"\xff\xff\xff\x7f", b"\x05" * 60])
def test_invalid_answer_about_topics_is_refused(decode: Any, data: bytes) -> None:
    for version in (4, 5):
        with pytest.raises(ProtocolError, match=r"cannot be read|too many"):
            decode(min(version, 4) if decode is decode_describe_configs_response else version, data)


def test_error_codes_of_responses_are_found() -> None:
    topic = DescribedTopic("t", 3, is_internal=False, partitions=[])

    assert list(TopicResults(0, [TopicResult("t", 36), TopicResult("u", 0)]).error_codes) == [36, 0]
    assert list(SettingsResponse(0, 29, None, []).error_codes) == [29]
    assert set(TopicsResponse(0, 0, [topic]).error_codes) == {0, 3}
