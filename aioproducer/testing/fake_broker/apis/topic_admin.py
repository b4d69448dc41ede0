"""CreateTopics 2-7 and CreatePartitions 0-3: any broker takes them and they work at once."""

from collections import Counter
from typing import TYPE_CHECKING, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topics.config_resources import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG
from aioproducer.testing.fake_broker.topics.topic_checks import TopicRefusedError
from aioproducer.testing.fake_broker.topics.topics import Topic, TopicRequest
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest


def answer_create_topics(exchange: Exchange) -> None:
    request = cast("CreateTopicsRequest", exchange.request())
    asked = {topic.name: topic for topic in request.topics}
    twice = {name for name, times in Counter(topic.name for topic in request.topics).items() if times > 1}
    refused = [_refused(name, codes.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    created = [
        _create(exchange, topic, validate_only=request.validate_only)
        for name, topic in asked.items()
        if name not in twice
    ]
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
            {"name": name, "value": value, "config_source": _source(topic, name)}
            for name, value in topic.config.values().items()
        ],
    }


def _source(topic: Topic, name: str) -> int:
    return DYNAMIC_TOPIC_CONFIG if name in topic.config.overrides else DEFAULT_CONFIG


def answer_create_partitions(exchange: Exchange) -> None:
    request = cast("CreatePartitionsRequest", exchange.request())
    asked = {topic.name: topic for topic in request.topics}
    twice = {name for name, times in Counter(topic.name for topic in request.topics).items() if times > 1}
    refused: list[Tree] = [
        {"name": name, "error_code": codes.INVALID_REQUEST, "error_message": "Duplicate topic name."} for name in twice
    ]
    results = [
        _add_partitions(exchange, topic, validate_only=request.validate_only)
        for name, topic in asked.items()
        if name not in twice
    ]
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
