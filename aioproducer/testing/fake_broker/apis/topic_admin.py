"""CreateTopics 2-7, CreatePartitions 0-3, DeleteTopics 1-6 and DeleteRecords 0-2.

Any broker serves the first three, and they take effect at once. DeleteTopics takes names or, since version 6, ids: a
topic given twice, or by name and by id, is not deleted.

Source: ControllerApis.deleteTopics in Apache Kafka.
"""

import uuid
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.apis.configs import config_source
from aioproducer.testing.fake_broker.apis.leadership import leader_error
from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topic_configs import TopicRefusedError
from aioproducer.testing.fake_broker.topics import Topic, TopicRequest
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsByName
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest as DeleteTopicsByEither
_TWICE = "Duplicate topic name."


def answer_create_topics(exchange: Exchange) -> None:
    request = cast("CreateTopicsRequest", exchange.request())
    times = Counter(topic.name for topic in request.topics)
    refused = [_refused(name, codes.INVALID_REQUEST, _TWICE) for name in times if times[name] > 1]
    once = [topic for topic in request.topics if times[topic.name] == 1]
    created = [_create(exchange, topic, validate_only=request.validate_only) for topic in once]
    exchange.reply_tree({"topics": [*created, *refused]}, exchange.now)


def _create(exchange: Exchange, asked: "CreatableTopic", *, validate_only: bool) -> Tree:
    if error := exchange.injected_error(asked.name):
        return _refused(asked.name, error, None)
    try:
        topic = exchange.cluster.topics.create(_wanted(asked), validate_only=validate_only)
    except TopicRefusedError as refusal:
        return _refused(asked.name, refusal.code, str(refusal))
    return _created(topic)


def _wanted(asked: "CreatableTopic") -> TopicRequest:
    assignment: dict[int, list[int]] = {}
    for assigned in asked.assignments:
        if assigned.partition_index in assignment:
            message = f"Found multiple manual partition assignments for partition {assigned.partition_index}"
            raise TopicRefusedError(codes.INVALID_REPLICA_ASSIGNMENT, message)
        assignment[assigned.partition_index] = list(assigned.broker_ids)
    return TopicRequest(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        configs={config.name: config.value for config in asked.configs},
        assignment=assignment,
    )


def _refused(name: str, error: int, message: str | None) -> Tree:
    return {
        "name": name,
        "error_code": error,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _created(topic: Topic) -> Tree:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {"name": name, "value": value, "config_source": config_source(topic.config, name)}
            for name, value in topic.config.values().items()
        ],
    }


def answer_create_partitions(exchange: Exchange) -> None:
    request = cast("CreatePartitionsRequest", exchange.request())
    times = Counter(topic.name for topic in request.topics)
    refused: list[Tree] = [
        {"name": name, "error_code": codes.INVALID_REQUEST, "error_message": _TWICE}
        for name in times
        if times[name] > 1
    ]
    once = [topic for topic in request.topics if times[topic.name] == 1]
    results = [_add_partitions(exchange, topic, validate_only=request.validate_only) for topic in once]
    exchange.reply_tree({"results": [*results, *refused]}, exchange.now)


def _add_partitions(exchange: Exchange, asked: "CreatePartitionsTopic", *, validate_only: bool) -> Tree:
    topics = exchange.cluster.topics
    topic = topics.named(asked.name)
    error, message = exchange.injected_error(asked.name), None
    nodes = None if asked.assignments is None else [list(assigned.broker_ids) for assigned in asked.assignments]
    if topic is None:
        error = error or codes.UNKNOWN_TOPIC_OR_PARTITION
    elif error == 0:
        try:
            topics.add_partitions(topic, asked.count, assignments=nodes, validate_only=validate_only)
        except TopicRefusedError as refusal:
            error, message = refusal.code, str(refusal)
    return {"name": asked.name, "error_code": error, "error_message": message}


_TO_THE_HIGH_WATERMARK = -1


def answer_delete_records(exchange: Exchange) -> None:
    request = cast("DeleteRecordsRequest", exchange.request())
    topics: list[Tree] = [
        {"name": topic.name, "partitions": [_partition(exchange, topic.name, asked) for asked in topic.partitions]}
        for topic in request.topics
    ]
    exchange.reply_tree({"topics": topics}, exchange.now)


def _partition(exchange: Exchange, topic_name: str, asked: "DeleteRecordsPartition") -> Tree:
    topic = exchange.cluster.topics.named(topic_name)
    partition = topic.partition(asked.partition_index) if topic else None
    error = exchange.injected_error(topic_name, asked.partition_index)
    error = error or leader_error(partition, exchange.broker.node_id, -1)
    low_watermark = -1
    if topic is not None and error == 0:
        low_watermark, error = _deleted(topic, asked.partition_index, asked.offset)
    return {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": error}


def _deleted(topic: Topic, index: int, offset: int) -> tuple[int, int]:
    """Return the new start of the log, or -1, and the error."""
    partition = topic.partitions[index]
    if not topic.config.is_deleted_from:
        return -1, codes.POLICY_VIOLATION
    end = partition.high_watermark
    offset = end if offset == _TO_THE_HIGH_WATERMARK else offset
    if not 0 <= offset <= end:
        return -1, codes.OFFSET_OUT_OF_RANGE
    partition.log.drop_before(offset)
    return partition.log.start_offset, 0


_FIRST_BY_ID = 6


class _Asked(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None


def answer_delete_topics(exchange: Exchange) -> None:
    if exchange.version >= _FIRST_BY_ID:
        by_either = cast("DeleteTopicsByEither", exchange.request())
        asked = [_Asked(state.name, state.topic_id) for state in by_either.topics]
    else:
        by_name = cast("DeleteTopicsByName", exchange.request())
        asked = [_Asked(name, None) for name in by_name.topic_names]
    exchange.reply_tree({"responses": _Deletion(exchange, asked).answers()}, exchange.now)


class _Deletion:
    def __init__(self, exchange: Exchange, asked: list[_Asked]) -> None:
        self._exchange = exchange
        self._topics = exchange.cluster.topics
        self._times = Counter(asked)

    def answers(self) -> list[Tree]:
        """Delete the topics that may be deleted; one response for each topic in the request."""
        return [self._answer(asked, times) for asked, times in self._times.items() if not self._is_also_by_name(asked)]

    def _answer(self, asked: _Asked, times: int) -> Tree:
        topic = self._topics.find(*asked)
        error, message = self._refusal(asked, times)
        if error == 0 and topic is not None:
            self._topics.delete(topic, self._exchange.now)
            asked = _Asked(topic.name, topic.topic_id)
        elif topic is not None and asked.topic_id is None:
            asked = _Asked(topic.name, topic.topic_id)
        return {"name": asked.name, "topic_id": asked.topic_id, "error_code": error, "error_message": message}

    def _refusal(self, asked: _Asked, times: int) -> tuple[int, str | None]:
        """Return the error code and its text; 0 if the topic may be deleted."""
        topic = self._topics.find(*asked)
        if (wrong := self._wrong_words(asked, times)) is not None:
            return codes.INVALID_REQUEST, wrong
        if error := self._exchange.injected_error(asked.name):
            return error, None
        if topic is None and asked.name is not None:
            return codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        return (0, None) if topic else (codes.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")

    def _wrong_words(self, asked: _Asked, times: int) -> str | None:
        if asked.name is None and asked.topic_id is None:
            return "Neither topic name nor id were specified."
        if asked.name is not None and asked.topic_id is not None:
            return "You may not specify both topic name and topic id."
        if times > 1:
            return _TWICE if asked.name is not None else "Duplicate topic id."
        if asked.name is not None and self._is_given_by_id(asked.name):
            return "The provided topic name maps to an ID that was already supplied."
        return None

    def _is_given_by_id(self, name: str) -> bool:
        topic = self._topics.named(name)
        return topic is not None and _Asked(None, topic.topic_id) in self._times

    def _is_also_by_name(self, asked: _Asked) -> bool:
        topic = self._topics.with_id(asked.topic_id) if asked.name is None else None
        return topic is not None and _Asked(topic.name, None) in self._times
