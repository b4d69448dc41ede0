"""DescribeConfigs 1-4: the settings of a topic, and the few a broker of the model has."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from aioproducer.testing.model.codes import INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from aioproducer.testing.model.exchange import Exchange
from aioproducer.testing.model.messages import Tree
from aioproducer.testing.model.settings import ClusterSettings

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource


TOPIC = 2
BROKER = 4
DYNAMIC_TOPIC_CONFIG = 1
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5


def answer_describe_configs(exchange: Exchange) -> None:
    """Describe topics and brokers."""
    request = cast("DescribeConfigsRequest", exchange.request())
    exchange.reply_tree({"results": [_describe(exchange, resource) for resource in request.resources]}, exchange.now)


def _describe(exchange: Exchange, asked: "DescribeConfigsResource") -> Tree:
    error = exchange.injected_error(asked.resource_name)
    configs: list[Tree] = []
    if asked.resource_type == TOPIC and error == 0:
        topic = exchange.cluster.topics.named(asked.resource_name)
        error = 0 if topic else UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None:
            configs = _listed(topic.config.values(), topic.config.overrides, DYNAMIC_TOPIC_CONFIG)
    elif asked.resource_type == BROKER and error == 0:
        values = _broker_configs(exchange.cluster.settings)
        configs = _listed(values, values, STATIC_BROKER_CONFIG)
    elif error == 0:
        error = INVALID_REQUEST
    wanted = asked.configuration_keys
    return {
        "error_code": error,
        "error_message": None,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": [config for config in configs if wanted is None or config["name"] in wanted],
    }


def _listed(values: Mapping[str, str], overrides: Mapping[str, str], source: int) -> list[Tree]:
    return [
        {
            "name": name,
            "value": value,
            "read_only": False,
            "config_source": source if name in overrides else DEFAULT_CONFIG,
            "is_sensitive": False,
            "documentation": None,
        }
        for name, value in values.items()
    ]


def _broker_configs(settings: ClusterSettings) -> dict[str, str]:
    return {
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "default.replication.factor": str(settings.replication_factor),
        "min.insync.replicas": str(settings.min_insync_replicas),
        "num.partitions": str(settings.num_partitions),
        "replica.lag.time.max.ms": str(round(settings.replica_lag_time_max_s * 1000)),
        "socket.request.max.bytes": str(settings.max_request_bytes),
    }
