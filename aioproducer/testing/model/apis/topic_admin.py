"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: any broker takes them and they work at once."""

from typing import TYPE_CHECKING, cast

from aioproducer.testing.model.exchange import Exchange
from aioproducer.testing.model.messages import Tree
from aioproducer.testing.model.topics import Topic, TopicRefusedError, TopicRequest

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsByName
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest as DeleteTopicsByEither

UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_TOPIC_ID = 100
_FIRST_DELETE_BY_ID = 6
DYNAMIC_TOPIC_CONFIG = 1
DEFAULT_CONFIG = 5


def answer_create_topics(exchange: Exchange) -> None:
    """Make topics, each for itself."""
    request = cast("CreateTopicsRequest", exchange.request())
    created = [_create(exchange, asked, validate_only=request.validate_only) for asked in request.topics]
    exchange.reply_tree({"topics": created}, exchange.now)


def _create(exchange: Exchange, asked: "CreatableTopic", *, validate_only: bool) -> Tree:
    assignments = sorted(asked.assignments, key=lambda assignment: assignment.partition_index)
    wanted = TopicRequest(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        configs={config.name: config.value for config in asked.configs if config.value is not None},
        assignment=[list(assignment.broker_ids) for assignment in assignments],
    )
    if error := exchange.injected_error(asked.name):
        return {"name": asked.name, "error_code": error, "error_message": None, "configs": None}
    try:
        topic = exchange.cluster.topics.create(wanted, validate_only=validate_only)
    except TopicRefusedError as refusal:
        return {"name": asked.name, "error_code": refusal.code, "error_message": str(refusal), "configs": None}
    return _created(topic)


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


def answer_delete_topics(exchange: Exchange) -> None:
    """Delete topics, by name or, since version 6, by id."""
    topics = exchange.cluster.topics
    if exchange.version >= _FIRST_DELETE_BY_ID:
        by_either = cast("DeleteTopicsByEither", exchange.request())
        asked = [(state.name, state.topic_id) for state in by_either.topics]
    else:
        by_name = cast("DeleteTopicsByName", exchange.request())
        asked = [(name, None) for name in by_name.topic_names]
    answers: list[Tree] = []
    for name, topic_id in asked:
        topic = topics.find(name, topic_id)
        error = exchange.injected_error(name)
        if topic is None:
            error = error or (UNKNOWN_TOPIC_OR_PARTITION if name is not None else UNKNOWN_TOPIC_ID)
        elif error == 0:
            topics.delete(topic, exchange.now)
        known = (topic.name, topic.topic_id) if topic else (name, topic_id)
        answers.append({"name": known[0], "topic_id": known[1], "error_code": error})
    exchange.reply_tree({"responses": answers}, exchange.now)


def answer_create_partitions(exchange: Exchange) -> None:
    """Give topics more partitions; where they go is the cluster's choice."""
    request = cast("CreatePartitionsRequest", exchange.request())
    results = [_add_partitions(exchange, asked, validate_only=request.validate_only) for asked in request.topics]
    exchange.reply_tree({"results": results}, exchange.now)


def _add_partitions(exchange: Exchange, asked: "CreatePartitionsTopic", *, validate_only: bool) -> Tree:
    topic = exchange.cluster.topics.named(asked.name)
    error, message = exchange.injected_error(asked.name), None
    if topic is None:
        error = error or UNKNOWN_TOPIC_OR_PARTITION
    elif error == 0:
        try:
            exchange.cluster.topics.add_partitions(topic, asked.count, validate_only=validate_only)
        except TopicRefusedError as refusal:
            error, message = refusal.code, str(refusal)
    return {"name": asked.name, "error_code": error, "error_message": message}
