"""DescribeConfigs 1-4: the settings of a topic, and the few a broker of the model has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from aioproducer.testing.fake_broker.exchange import Exchange
from aioproducer.testing.fake_broker.topics.config_resources import (
    BROKER,
    DEFAULT_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC,
    check_node,
)
from aioproducer.testing.fake_broker.topics.config_types import TOPIC_CONFIG_TYPES, ConfigType
from aioproducer.testing.fake_broker.topics.topic_checks import TopicRefusedError, check_name
from aioproducer.testing.fake_broker.wire import codes
from aioproducer.testing.fake_broker.wire.messages import Tree

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource


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
    overrides = topic.config.overrides
    for key, value in topic.config.values().items():
        source = DYNAMIC_TOPIC_CONFIG if key in overrides else DEFAULT_CONFIG
        yield _Config(key, value, TOPIC_CONFIG_TYPES[key], source, read_only=False)


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


_CHANGEABLE = frozenset(("listeners", "min.insync.replicas"))
"""What a real broker could change while it runs."""
