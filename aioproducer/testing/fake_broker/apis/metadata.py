"""ApiVersions 0-5: versions and features. Metadata 0-13: brokers, topics, leaders; and topics made on first use.

An ApiVersions that is too new is answered in the shape of version 0 with error 35 and the versions of ApiVersions
itself, so that a client can ask again (KIP-511). The response's header has no tagged fields in any version.

A topic that does not exist yet gets 3 UNKNOWN_TOPIC_OR_PARTITION (5 before Kafka 2.8) and is then created; a later
request finds it. Version 0 asks for all topics with an empty list, later ones with null.
"""

import contextlib
import re
import struct
import uuid
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.log.partition import NO_LEADER, Partition
from aioproducer.testing.fake_broker.topic_configs import TopicRefusedError
from aioproducer.testing.fake_broker.topics import Topic, TopicRequest, check_name
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.api_keys import ApiKey
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.metadata.v10.request import MetadataRequest as UpTo10
    from kio.schema.metadata.v10.request import MetadataRequestTopic as TopicUpTo10
    from kio.schema.metadata.v13.request import MetadataRequest as UpTo13
    from kio.schema.metadata.v13.request import MetadataRequestTopic as TopicUpTo13

    from aioproducer.testing.fake_broker.wire._newer_classes import ApiVersionsRequest

_Request: TypeAlias = Union["UpTo10", "UpTo13"]
_RequestTopic: TypeAlias = Union["TopicUpTo10", "TopicUpTo13"]
_LAST_WITH_CLUSTER_OPERATIONS = 10
_FIRST_WITH_NULL_FOR_ALL = 1
_EVERYTHING_WITH_TOPICS = 3576
_EVERYTHING_WITH_CLUSTERS = 8096  # operations that a client may perform where nothing is forbidden, as bits
_NAMES_ONLY = {10, 11}  # versions with a field for topic ids that must not be used yet


def answer_metadata(exchange: Exchange) -> None:
    cluster = exchange.cluster
    request = cast("_Request", exchange.request())
    if exchange.version in _NAMES_ONLY and any(asked.name is None or asked.topic_id for asked in request.topics or ()):
        exchange.reply_tree(_refusal(request), exchange.now)
        return
    topics = _topics(exchange, request)
    tree: dict[str, object] = {
        "error_code": 0,
        "brokers": [
            {"node_id": node, "host": host, "port": port, "rack": cluster.settings.racks.get(node)}
            for node in cluster.live_nodes()
            if cluster.brokers[node].is_in_metadata
            for host, port in [exchange.address_of(node)]
        ],
        "cluster_id": cluster.settings.cluster_id,
        "controller_id": min(cluster.live_nodes()),
        "topics": topics,
    }
    if request.include_topic_authorized_operations:
        tree["topics"] = [{**topic, "topic_authorized_operations": _EVERYTHING_WITH_TOPICS} for topic in topics]
    if (
        exchange.version <= _LAST_WITH_CLUSTER_OPERATIONS
        and cast("UpTo10", request).include_cluster_authorized_operations
    ):
        tree["cluster_authorized_operations"] = _EVERYTHING_WITH_CLUSTERS
    exchange.reply_tree(tree, exchange.now)


def _refusal(request: _Request) -> Tree:
    """Return the response to a request by topic id in a version whose brokers do not support that yet."""
    topics = [{**_unknown(asked.name or "", asked.topic_id, codes.INVALID_REQUEST)} for asked in request.topics or ()]
    return {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": topics}


def _topics(exchange: Exchange, request: _Request) -> list[Tree]:
    asked = request.topics
    if asked is None or (not asked and exchange.version < _FIRST_WITH_NULL_FOR_ALL):
        return [_described(exchange, topic) for topic in exchange.cluster.topics]
    may_create = request.allow_auto_topic_creation and exchange.cluster.settings.auto_create_topics
    each_once = {(topic.name, topic.topic_id): topic for topic in asked}.values()
    return [_answered(exchange, topic, may_create=may_create) for topic in each_once]


def _answered(exchange: Exchange, asked: _RequestTopic, *, may_create: bool) -> Tree:
    topic = exchange.cluster.topics.find(asked.name, asked.topic_id)
    if topic is not None:
        return _described(exchange, topic)
    if asked.name is None:
        return _unknown(None, asked.topic_id, codes.UNKNOWN_TOPIC_ID)
    try:
        check_name(asked.name)
    except TopicRefusedError as refusal:
        return _unknown(asked.name, None, refusal.code)
    error = exchange.injected_error(asked.name)
    if error == 0 and may_create:
        error = _begin_creation(exchange, asked.name)
    return _unknown(asked.name, None, error or codes.UNKNOWN_TOPIC_OR_PARTITION)


def _unknown(name: str | None, topic_id: uuid.UUID | None, error: int) -> Tree:
    return {"error_code": error, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}


def _begin_creation(exchange: Exchange, name: str) -> int:
    """Schedule the creation of a topic and return the error to respond with meanwhile."""
    cluster = exchange.cluster
    try:
        cluster.topics.create(TopicRequest(name=name), validate_only=True)
    except TopicRefusedError as refusal:
        return refusal.code

    def create(now: float) -> None:
        del now
        with contextlib.suppress(TopicRefusedError):  # created by another request, or too few brokers by now
            cluster.topics.create(TopicRequest(name=name))

    cluster.schedule.at(exchange.now + cluster.settings.auto_create_delay_s, create)
    return cluster.settings.profile.auto_create_answer


def _described(exchange: Exchange, topic: Topic) -> Tree:
    error = exchange.injected_error(topic.name)
    partitions = [] if error else list(enumerate(topic.partitions))
    return {
        "error_code": error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(exchange, index, partition) for index, partition in partitions],
    }


def _partition(exchange: Exchange, index: int, partition: Partition) -> Tree:
    present = (partition.leader, partition.leader_epoch)
    leader, leader_epoch = exchange.broker.stale_leaders.get(partition, present)
    return {
        "error_code": codes.LEADER_NOT_AVAILABLE if leader == NO_LEADER else 0,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": partition.offline_replicas,
    }


_FIRST_WITH_SOFTWARE_NAME = 3
_NO_NODE = -1
_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_api_versions(exchange: Exchange) -> None:
    profile, accepts_metrics = (
        exchange.cluster.settings.profile,
        exchange.cluster.client_metrics.subscription is not None,
    )
    if not profile.supports(ApiKey.API_VERSIONS, exchange.version):
        own = profile.versions[ApiKey.API_VERSIONS]
        refusal = struct.pack(">hihhh", codes.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, *own)
        exchange.reply([refusal], exchange.now)
        return
    error = exchange.injected_error() or _software_error(exchange) or _destination_error(exchange)
    tree: Tree = {
        "error_code": error,
        "api_keys": () if error else profile.listed_apis(accepts_metrics=accepts_metrics),
        **({} if error else exchange.cluster.features.tree(exchange.version)),
    }
    if not error and exchange.session is not None:
        exchange.session.versions_answered()
    exchange.reply_tree(tree, exchange.now)


def _destination_error(exchange: Exchange) -> int:
    """Return the error of a client that means another node or cluster, or that names only one of the two (KIP-1242)."""
    request = cast("ApiVersionsRequest", exchange.request())
    meant = (request.cluster_id, request.node_id)
    if meant == (None, _NO_NODE):
        return 0
    if None in meant or _NO_NODE in meant:
        return codes.INVALID_REQUEST
    own = (exchange.cluster.settings.cluster_id, exchange.broker.node_id)
    return 0 if meant == own else codes.REBOOTSTRAP_REQUIRED


def _software_error(exchange: Exchange) -> int:
    request = cast("ApiVersionsRequest", exchange.request())
    if exchange.version < _FIRST_WITH_SOFTWARE_NAME:
        return 0
    names = (request.client_software_name, request.client_software_version)
    return 0 if all(_LEGAL_SOFTWARE.fullmatch(name) for name in names) else codes.INVALID_REQUEST
