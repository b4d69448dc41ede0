"""AlterConfigs 0-2 and IncrementalAlterConfigs 0-1: the settings of topics; any broker takes them, they work at once.

AlterConfigs replaces all that was set for a topic, IncrementalAlterConfigs changes what it names (KIP-339). Brokers of
the model have no settings that can be changed while they run.

Source: ConfigAdminManager and ConfigurationControlManager in Apache Kafka; the texts are what 3.9.1 and 4.3.1 say.
"""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topics.config_resources import BROKER, TOPIC, check_node
from aioproducer.testing.fake_broker.topics.config_types import TOPIC_CONFIG_TYPES, ConfigType
from aioproducer.testing.fake_broker.topics.config_values import trimmed
from aioproducer.testing.fake_broker.topics.topic_checks import TopicRefusedError, check_name
from aioproducer.testing.fake_broker.topics.topic_configs import TopicConfig
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
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
