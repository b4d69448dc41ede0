"""Fetch, ListOffsets and OffsetForLeaderEpoch: limits, long polls, times, errors."""

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
    named = {"topic_id": client.network.topic().topic_id} if version >= 13 else {"topic": "t"}
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


def list_offset(
    client: ModelClient, timestamp: int, *, version: int = 8, topic: str = "t", epoch: int = -1
) -> tuple[int, int]:
    message = import_module(f"kio.schema.list_offsets.v{version}.request")
    known = {"current_leader_epoch": epoch} if version >= 4 else {}
    partition = message.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **known)
    asked = (message.ListOffsetsTopic(name=topic, partitions=(partition,)),)
    isolation = {"isolation_level": 0} if version >= 2 else {}
    answer = client.ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=asked, **isolation)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.offset


def written() -> ModelNetwork:
    network = ModelNetwork()
    for timestamp in (1000, 3000, 2000):
        network.client().produce("t", batch([b"a", b"b"], timestamp=timestamp))
    return network


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_lists_the_end(version: int) -> None:
    assert list_offset(written().client(), -1, version=version) == (0, 6)


@pytest.mark.parametrize("timestamp, offset", [(-1, 6), (-2, 0), (-3, 2), (-4, 0), (0, 0), (1500, 2), (3001, -1)])
def test_times_and_their_offsets(timestamp: int, offset: int) -> None:
    assert list_offset(written().client(), timestamp) == (0, offset)


@pytest.mark.parametrize("timestamp, version", [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-9, 11)])
def test_special_timestamps_have_a_first_version(timestamp: int, version: int) -> None:
    client = written().client()

    assert list_offset(client, timestamp, version=version) == (35, -1)
    assert list_offset(client, timestamp, version=version, topic="none") == (35, -1)


def test_empty_log_has_no_highest_time() -> None:
    assert list_offset(ModelNetwork().client(), -3) == (0, -1)


def test_only_the_leader_of_that_epoch_answers() -> None:
    network = ModelNetwork(2)
    network.partition().move_leader(2, network.now)
    leader = network.client(2)

    errors = [
        list_offset(leader, -1, topic="none")[0],
        list_offset(network.client(1), -1)[0],
        *(list_offset(leader, -1, epoch=epoch)[0] for epoch in (0, 1, 2)),
    ]

    assert errors == [3, 6, 74, 0, 75]


def test_epoch_tells_where_it_ended() -> None:
    """A consumer sees by it that the log was cut."""
    network = ModelNetwork(2)
    network.client().produce("t", batch())
    network.partition().move_leader(2, network.now)
    leader = network.client(2)
    leader.produce("t", batch())
    message = import_module("kio.schema.offset_for_leader_epoch.v4.request")
    partitions = tuple(message.OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1))

    topics = (message.OffsetForLeaderTopic(topic="t", partitions=partitions),)
    (answer,) = leader.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics).topics

    assert [(found.leader_epoch, found.end_offset) for found in answer.partitions] == [(0, 1), (1, 2)]
