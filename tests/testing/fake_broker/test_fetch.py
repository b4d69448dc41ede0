"""Fetch: limits, long polls, errors."""

import struct
import uuid
from datetime import timedelta
from importlib import import_module

import pytest

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelClient, ModelNetwork, batch


def send_fetch(
    client: ModelClient,
    offset: int,
    *,
    version: int = 11,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10**6,
) -> None:
    message = import_module(f"kio.schema.fetch.v{version}.request")
    partition = message.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = client.network.model.topics.named("t")
    assert topic is not None
    named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": "t"}
    client.send_message(
        ApiKey.FETCH,
        version,
        max_wait=timedelta(milliseconds=max_wait_ms),
        min_bytes=min_bytes,
        topics=(message.FetchTopic(**named, partitions=(partition,)),),
        **({"forgotten_topics_data": ()} if version >= 7 else {}),
    )


def fetched(client: ModelClient, version: int = 11):  # noqa: ANN201 - kio's class
    (topic,) = client.answer(ApiKey.FETCH, version).responses
    return topic.partitions[0]


def offsets_in(records: bytes) -> list[int]:
    found = []
    while records:
        offset, length = struct.unpack_from(">qi", records)
        found.append(offset)
        records = records[length + 12 :]
    return found


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_answered(version: int) -> None:
    client = ModelNetwork().client()
    client.produce("t", batch([b"a", b"b"]))

    send_fetch(client, 0, version=version)
    answer = fetched(client, version)

    assert (int(answer.error_code), answer.high_watermark, offsets_in(answer.records)) == (0, 2, [0])


def test_offset_inside_a_batch_returns_the_whole_batch() -> None:
    """Consumers skip the records before the offset they fetched."""
    client = ModelNetwork().client()
    client.produce("t", batch([b"a", b"b"]))
    client.produce("t", batch())

    send_fetch(client, 1)

    assert offsets_in(fetched(client).records) == [0, 2]


def test_first_batch_of_any_size_is_returned() -> None:
    """Otherwise a consumer with a small limit could not proceed (KIP-74)."""
    client = ModelNetwork().client()
    for _ in range(2):
        client.produce("t", batch())

    send_fetch(client, 0, max_bytes=1)

    assert offsets_in(fetched(client).records) == [0]


def test_records_above_the_high_watermark_are_hidden() -> None:
    """Records that are not on all copies may still be lost."""
    network = ModelNetwork(2)
    network.model.hold_replication(2, network.now, held=True)
    client = network.client()
    client.produce("t", batch(), acks=1)

    send_fetch(client, 0)

    assert fetched(client).records == b""


def test_long_poll_ends_with_the_first_record() -> None:
    network = ModelNetwork()
    reader, writer = network.client(), network.client()
    send_fetch(reader, 0, max_wait_ms=5000)
    before = reader.frames()

    writer.produce("t", batch())

    assert before == []
    assert offsets_in(fetched(reader).records) == [0]


def test_long_poll_ends_with_its_time() -> None:
    client = ModelNetwork().client()
    send_fetch(client, 0, max_wait_ms=500)

    client.network.advance(0.5)

    assert fetched(client).records == b""


@pytest.mark.parametrize("offset, error", [(0, 0), (1, 0), (2, 1), (-1, 1)])
def test_offset_must_be_in_the_log(offset: int, error: int) -> None:
    client = ModelNetwork().client()
    client.produce("t", batch())

    send_fetch(client, offset)

    assert int(fetched(client).error_code) == error


def test_unknown_topic_id() -> None:
    client = ModelNetwork().client()
    message = import_module("kio.schema.fetch.v18.request")
    partition = message.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = message.FetchTopic(topic_id=uuid.uuid4(), partitions=(partition,))
    fields = {"max_wait": timedelta(), "min_bytes": 1, "topics": (topic,), "forgotten_topics_data": ()}

    client.send_message(ApiKey.FETCH, 18, **fields)

    assert int(fetched(client, 18).error_code) == 100
