"""DescribeConfigs 1-4, AlterConfigs 0-2 and IncrementalAlterConfigs 0-1: settings of topics, and a broker's few.

Any broker serves them, and changes take effect at once. AlterConfigs replaces all settings of a topic,
IncrementalAlterConfigs changes those it names (KIP-339). A broker's settings cannot be changed while it runs.

Source: ConfigAdminManager and ConfigurationControlManager in Apache Kafka; the texts are those of 3.9.1 and 4.4.0.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topic_configs import (
    INT_MAX,
    TOPIC_CONFIG_TYPES,
    ConfigType,
    TopicConfig,
    TopicRefusedError,
    trimmed,
    whole_number,
)
from aioproducer.testing.fake_broker.topics import check_name
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Change(NamedTuple):
    name: str
    operation: int
    value: str | None


class _Resource(NamedTuple):
    """Changes of one topic or broker."""

    kind: int
    name: str
    changes: Sequence[_Change]


def answer_alter_configs(exchange: Exchange) -> None:
    request = cast("AlterConfigsRequest", exchange.request())
    asked = [
        _Resource(
            each.resource_type, each.resource_name, [_Change(c.name, _Operation.SET, c.value) for c in each.configs]
        )
        for each in request.resources
    ]
    _answer(exchange, asked, is_incremental=False, validate_only=request.validate_only)


def answer_incremental_alter_configs(exchange: Exchange) -> None:
    request = cast("IncrementalAlterConfigsRequest", exchange.request())
    asked = [
        _Resource(
            each.resource_type,
            each.resource_name,
            [_Change(config.name, config.config_operation, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    _answer(exchange, asked, is_incremental=True, validate_only=request.validate_only)


def _answer(exchange: Exchange, asked: Sequence[_Resource], *, is_incremental: bool, validate_only: bool) -> None:
    times = Counter((resource.kind, resource.name) for resource in asked)
    responses: list[Tree] = []
    for resource in asked:
        error, message = exchange.injected_error(resource.name), None
        try:
            if not error:
                _check(exchange, resource, times=times[resource.kind, resource.name])
                _alter(exchange, resource, is_incremental=is_incremental, validate_only=validate_only)
        except TopicRefusedError as refusal:
            error, message = refusal.code, str(refusal) or None
        responses.append(
            {
                "error_code": error,
                "error_message": message,
                "resource_type": resource.kind,
                "resource_name": resource.name,
            }
        )
    exchange.reply_tree({"responses": responses}, exchange.now)


def _check(exchange: Exchange, resource: _Resource, *, times: int) -> None:
    """Check what the broker that received the request checks itself."""
    if times > 1:
        raise TopicRefusedError(codes.INVALID_REQUEST, "Each resource must appear at most once.")
    names = [change.name for change in resource.changes]
    if len(set(names)) < len(names):
        raise TopicRefusedError(codes.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [
        change.name for change in resource.changes if change.value is None and change.operation != _Operation.DELETE
    ]
    if missing:
        raise TopicRefusedError(codes.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
    if resource.kind == BROKER:
        _check_broker(exchange.broker.node_id, resource)
    elif resource.kind != TOPIC:
        raise TopicRefusedError(codes.INVALID_REQUEST, f"Unknown resource type {resource.kind}")
    elif not resource.name:
        raise TopicRefusedError(codes.INVALID_REQUEST, "Default topic resources are not allowed.")
    elif any(change.operation not in set(_Operation) for change in resource.changes):
        raise TopicRefusedError(codes.UNKNOWN_SERVER_ERROR, "")


def _check_broker(node_id: int, resource: _Resource) -> None:
    if resource.name:
        check_node(resource.name, node_id, noun="Node", expected=str(node_id))
    changed = [change.name for change in resource.changes if change.operation != _Operation.DELETE]
    if changed:
        raise TopicRefusedError(
            codes.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(changed)}]"
        )


def _alter(exchange: Exchange, resource: _Resource, *, is_incremental: bool, validate_only: bool) -> None:
    if resource.kind == BROKER:
        return
    check_name(resource.name)
    topics = exchange.cluster.topics
    topic = topics.named(resource.name)
    present = topic.config if topic else topics.config({})
    overrides = dict(present.overrides) if is_incremental else {}
    for change in resource.changes:
        value = _changed(change, present)
        if value is None:
            overrides.pop(change.name, None)
        else:
            overrides[change.name] = value
    config = topics.config(overrides)
    if topic is None:
        raise TopicRefusedError(codes.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    if not validate_only:
        topic.config = config


def _changed(change: _Change, present: TopicConfig) -> str | None:
    """Return the new value of a setting; None for the cluster's default."""
    operation = _Operation(change.operation)
    value = trimmed(change.value or "")
    if operation is _Operation.DELETE:
        return None
    if operation is _Operation.SET:
        return value
    if TOPIC_CONFIG_TYPES.get(change.name) is not ConfigType.LIST:
        message = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise TopicRefusedError(codes.INVALID_CONFIG, message)
    kept = [word for word in present.values()[change.name].split(",") if word]
    words = value.split(",")
    if operation is _Operation.APPEND:
        return ",".join(dict.fromkeys([*kept, *words]))
    return ",".join(word for word in kept if word not in words)


TOPIC = 2
BROKER = 4

DYNAMIC_TOPIC_CONFIG = 1
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5


def check_node(asked: str, node_id: int, *, noun: str, expected: str) -> None:
    """Check that a request about one broker went to it; `noun` and `expected` are for Kafka's message."""
    number = whole_number(asked, INT_MAX)
    if number is None:
        raise TopicRefusedError(codes.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {asked}")
    if number != node_id:
        raise TopicRefusedError(
            codes.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {asked}"
        )


class _Config(NamedTuple):
    name: str
    value: str
    config_type: ConfigType
    config_source: int
    read_only: bool


def answer_describe_configs(exchange: Exchange) -> None:
    request = cast("DescribeConfigsRequest", exchange.request())
    results = [_result(exchange, resource, with_synonyms=request.include_synonyms) for resource in request.resources]
    exchange.reply_tree({"results": results}, exchange.now)


def _result(exchange: Exchange, asked: "DescribeConfigsResource", *, with_synonyms: bool) -> Tree:
    error, message = exchange.injected_error(asked.resource_name), ""
    configs: Iterable[_Config] = ()
    try:
        configs = () if error else tuple(_described(exchange, asked))
    except TopicRefusedError as refusal:
        error, message = refusal.code, str(refusal)
    wanted = asked.configuration_keys
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [
            _tree(config, with_synonyms=with_synonyms) for config in configs if not wanted or config.name in wanted
        ],
    }


def _tree(config: _Config, *, with_synonyms: bool) -> Tree:
    """One setting. If it was set, it is its own only synonym: the brokers have no defaults that topics inherit."""
    synonym: Tree = {"name": config.name, "value": config.value, "source": config.config_source}
    is_set = config.config_source != DEFAULT_CONFIG
    return {
        **config._asdict(),
        "is_sensitive": False,
        "synonyms": [synonym] if with_synonyms and is_set else [],
        "documentation": None,
    }


def _described(exchange: Exchange, asked: "DescribeConfigsResource") -> Iterable[_Config]:
    if asked.resource_type == TOPIC:
        return _topic_configs(exchange, asked.resource_name)
    if asked.resource_type != BROKER:
        raise TopicRefusedError(codes.INVALID_REQUEST, "")
    if not asked.resource_name:
        return ()  # what was set for all brokers while they ran
    node_id = exchange.broker.node_id
    check_node(asked.resource_name, node_id, noun="Broker", expected=f"{node_id} or empty string")
    return _broker_configs(exchange)


def _topic_configs(exchange: Exchange, name: str) -> Iterable[_Config]:
    check_name(name)
    topic = exchange.cluster.topics.named(name)
    if topic is None:
        raise TopicRefusedError(codes.UNKNOWN_TOPIC_OR_PARTITION, "")
    for key, value in topic.config.values().items():
        yield _Config(key, value, TOPIC_CONFIG_TYPES[key], config_source(topic.config, key), read_only=False)


def config_source(config: TopicConfig, name: str) -> int:
    return DYNAMIC_TOPIC_CONFIG if name in config.overrides else DEFAULT_CONFIG


def _broker_configs(exchange: Exchange) -> Iterable[_Config]:
    broker, settings = exchange.broker, exchange.cluster.settings
    is_list = settings.profile.lists_listeners
    of_listeners = ConfigType.LIST if is_list else ConfigType.STRING
    changeable = _CHANGEABLE if is_list else {*_CHANGEABLE, "advertised.listeners"}
    listener = f"PLAINTEXT://{broker.host}:{broker.port}"
    yield from (
        _Config(name, value, kind, STATIC_BROKER_CONFIG, read_only=name not in changeable)
        for name, value, kind in (
            ("advertised.listeners", listener, of_listeners),
            ("auto.create.topics.enable", str(settings.auto_create_topics).lower(), ConfigType.BOOLEAN),
            ("broker.id", str(broker.node_id), ConfigType.INT),
            ("default.replication.factor", str(settings.replication_factor), ConfigType.INT),
            ("listeners", listener, of_listeners),
            ("min.insync.replicas", str(settings.min_insync_replicas), ConfigType.INT),
            ("node.id", str(broker.node_id), ConfigType.INT),
            ("num.partitions", str(settings.num_partitions), ConfigType.INT),
            ("offsets.topic.num.partitions", str(settings.offsets_topic_partitions), ConfigType.INT),
            ("replica.lag.time.max.ms", str(round(settings.replica_lag_time_max_s * 1000)), ConfigType.LONG),
            ("socket.request.max.bytes", str(settings.max_request_bytes), ConfigType.INT),
            ("transaction.max.timeout.ms", str(round(settings.transaction_max_timeout_s * 1000)), ConfigType.INT),
            (
                "transactional.id.expiration.ms",
                str(round(settings.transactional_id_expiration_s * 1000)),
                ConfigType.INT,
            ),
        )
    )


_CHANGEABLE = frozenset(("listeners", "min.insync.replicas"))  # what a real broker could change while it runs
