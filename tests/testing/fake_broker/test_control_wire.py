"""What is written by hand says the same as the schemas, in every version."""

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.control_wire import MetadataRequest, MetadataRequestTopic
from aioproducer.testing.fake_broker.wire.messages import (
    decode_by_schema,
    decode_request,
    encode_by_schema,
    encode_response,
)
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Writer

TOPIC_ID = uuid.UUID(int=77)
VERSIONS = [
    *((ApiKey.METADATA, version) for version in range(14)),
    *((ApiKey.API_VERSIONS, version) for version in range(5)),
    *((ApiKey.INIT_PRODUCER_ID, version) for version in range(7)),
]


def answers(api: ApiKey, version: int) -> Iterator[Mapping[str, object]]:
    """Answers with nothing, something and a lot in them."""
    for many in (0, 1, 200):
        if api is ApiKey.METADATA:
            yield metadata(version, many)
        elif api is ApiKey.API_VERSIONS:
            keys = [{"api_key": n, "min_version": n, "max_version": n + 1} for n in range(many)]
            yield {"throttle_time": 7, "error_code": 35, "api_keys": keys, **features(many)}
        else:
            yield {"throttle_time": many, "error_code": -1, "producer_id": 2**40 + many, "producer_epoch": 7}


def features(many: int) -> Mapping[str, object]:
    """Of a cluster that has agreed on so many."""
    if not many:
        return {}
    supported = [{"name": f"f{n}", "min_version": 0, "max_version": n} for n in range(many)]
    finalized = [{"name": f"f{n}", "max_version_level": n, "min_version_level": n} for n in range(1, many)]
    return {"supported_features": supported, "finalized_features_epoch": many, "finalized_features": finalized}


def metadata(version: int, many: int) -> Mapping[str, object]:
    """A Metadata answer."""
    partitions = [
        {
            "error_code": number % 3 - 1,
            "partition_index": number,
            "leader_id": number - 1,
            "leader_epoch": number,
            "replica_nodes": [1, 2, number],
            "isr_nodes": [],
            "offline_replicas": [number],
        }
        for number in range(many)
    ]
    nameless = None if version >= 12 else "no more"
    return {
        "throttle_time": 300,
        "error_code": 129,
        "brokers": [{"node_id": n, "host": "é" * n, "port": 9092, "rack": None if n % 2 else "r"} for n in range(many)],
        "cluster_id": "c" if many else None,
        "controller_id": 2,
        "topics": [
            {
                "error_code": 3,
                "name": "x",
                "topic_id": TOPIC_ID,
                "is_internal": True,
                "partitions": partitions,
                "topic_authorized_operations": 5,
            },
            {"error_code": 0, "name": nameless, "topic_id": None, "is_internal": False, "partitions": []},
        ],
        "cluster_authorized_operations": 7,
    }


def requests(api: ApiKey, version: int) -> Iterator[bytes]:
    """Bodies of requests; for versions that the producer does not send, too."""
    flexible = api.is_flexible(version)
    for seed in range(20):
        chance, writer = random.Random(seed), Writer(flexible=flexible)
        if api is ApiKey.METADATA:
            write_metadata_request(writer, version, chance)
        elif api is ApiKey.API_VERSIONS and version >= 3:
            writer.string("a" * chance.randrange(200))
            writer.string("b")
            writer.tagged_fields()
        elif api is ApiKey.INIT_PRODUCER_ID:
            writer.string(chance.choice((None, "", "t")))
            writer.int32(chance.randrange(-5, 5))
            if version >= 3:
                writer.int64(chance.randrange(-1, 2**62))
                writer.int16(chance.randrange(-1, 5))
            if version >= 6:
                writer.fixed(bytes(chance.randrange(2) for _ in range(2)))
            writer.tagged_fields()
        yield bytes(writer.open)


def write_metadata_request(writer: Writer, version: int, chance: random.Random) -> None:
    """Some topics or all, and every switch."""
    count = chance.choice((0, 1, 3, 150, 0 if version == 0 else -1))
    writer.count(count)
    for number in range(count):
        if version >= 10:
            writer.fixed(chance.choice((bytes(16), TOPIC_ID.bytes)))
        writer.string(None if version >= 10 and number % 2 else f"topic-{number}")
        writer.tagged_fields()
    switches = (version >= 4) + (version >= 8) + (8 <= version <= 10)
    writer.fixed(bytes(chance.randrange(2) for _ in range(switches)))
    writer.tagged_fields()


@pytest.mark.parametrize("api, version", VERSIONS)
def test_answers_are_those_of_the_schema(api: ApiKey, version: int) -> None:
    """Byte by byte."""
    for tree in answers(api, version):
        assert encode_response(api, version, tree) == encode_by_schema(api, version, tree)


@pytest.mark.parametrize("api, version", VERSIONS)
def test_requests_are_read_as_by_the_schema(api: ApiKey, version: int) -> None:
    """Field by field."""
    for body in requests(api, version):
        by_hand = decode_request(api, version, memoryview(body))
        by_schema = decode_by_schema(api, version, memoryview(body))

        for name in set(getattr(by_hand, "_fields", ())) - {"topics"}:
            assert getattr(by_hand, name) == getattr(by_schema, name, getattr(by_hand, name)), name
        if isinstance(by_hand, MetadataRequest):
            asked = getattr(by_schema, "topics")  # noqa: B009  # of a class that is made at run time
            known = None if asked is None else [MetadataRequestTopic(each.topic_id, each.name) for each in asked]
            assert by_hand.topics == known


def is_refused(decode: Callable[[memoryview], object], body: bytes) -> bool:
    """Whether a decoder does not take a body."""
    try:
        decode(memoryview(body))
    except MalformedRequestError:
        return True
    return False


@pytest.mark.parametrize("api, version", VERSIONS)
def test_what_ends_too_early_is_refused(api: ApiKey, version: int) -> None:
    """As by the schema; nothing is read behind the end."""
    beginnings = [body[:end] for body in requests(api, version) for end in range(min(len(body), 40))]
    by_hand, by_schema = partial(decode_request, api, version), partial(decode_by_schema, api, version)
    assert [is_refused(by_hand, body) for body in beginnings] == [is_refused(by_schema, body) for body in beginnings]
