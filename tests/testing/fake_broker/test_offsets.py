"""ListOffsets, OffsetForLeaderEpoch, and the offsets of groups."""

from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module

import pytest

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelClient, ModelNetwork, batch


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


def topic_key(network: ModelNetwork, version: int, *, by_id_from: int) -> dict[str, object]:
    topic = network.model.topics.named("t")
    assert topic is not None
    return {"topic_id": topic.topic_id} if version >= by_id_from else {"name": "t"}


def commit(client: ModelClient, version: int, offset: int, *, generation: int = -1, member_id: str = "") -> int:
    message = import_module(f"kio.schema.offset_commit.v{version}.request")
    fields: dict[str, object] = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    key = topic_key(client.network, version, by_id_from=10)
    topic = message.OffsetCommitRequestTopic(partitions=(message.OffsetCommitRequestPartition(**fields),), **key)
    name = "generation_id_or_member_epoch"
    asked = {"group_id": "g", name: generation, "member_id": member_id, "topics": (topic,)}
    if 2 <= version <= 4:
        asked["retention_time"] = timedelta(milliseconds=-1)
    (answer,) = client.ask(ApiKey.OFFSET_COMMIT, version, **asked).topics
    return int(answer.partitions[0].error_code)


def committed(client: ModelClient, version: int, *, everything: bool = False) -> Sequence[int]:
    message = import_module(f"kio.schema.offset_fetch.v{version}.request")
    key = topic_key(client.network, version, by_id_from=10)
    if version < 8:
        topics = None if everything else (message.OffsetFetchRequestTopic(partition_indexes=(0,), **key),)
        answer = client.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=topics)
    else:
        topics = None if everything else (message.OffsetFetchRequestTopics(partition_indexes=(0,), **key),)
        group = message.OffsetFetchRequestGroup(group_id="g", topics=topics)
        (answer,) = client.ask(ApiKey.OFFSET_FETCH, version, groups=(group,)).groups
    return [partition.committed_offset for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(version: int) -> None:
    client = ModelNetwork().client()

    assert (commit(client, version, 7), committed(client, 5)) == (0, [7])


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches_what_was_committed(version: int) -> None:
    client = ModelNetwork().client()
    before = committed(client, version)
    commit(client, 8, 7)

    assert (before, committed(client, version)) == ([-1], [7])


@pytest.mark.parametrize("version", [2, 7, 9, 10])
def test_everything_committed_is_fetched(version: int) -> None:
    client = ModelNetwork().client()
    before = committed(client, version, everything=True)
    commit(client, 8, 7)

    assert (before, committed(client, version, everything=True)) == ([], [7])


def test_commit_of_a_stranger_is_refused() -> None:
    client = ModelNetwork().client()
    unknown = commit(client, 8, 7, generation=3)
    commit(client, 8, 7)

    assert (unknown, commit(client, 8, 7, generation=3)) == (22, 25)


@pytest.mark.parametrize("topics", [(), ("unknown",)])
def test_commit_of_nothing_makes_no_group(topics: Sequence[str]) -> None:
    network = ModelNetwork()
    message = import_module("kio.schema.offset_commit.v8.request")
    part = message.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    asked = tuple(message.OffsetCommitRequestTopic(name=topic, partitions=(part,)) for topic in topics)

    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": asked}
    answer = network.client().ask(ApiKey.OFFSET_COMMIT, 8, **fields)

    assert [int(topic.partitions[0].error_code) for topic in answer.topics] == [3] * len(topics)
    assert not network.model.groups.existing()
