"""What kind of value each setting of a topic has, by Kafka's numbers.

Source: ConfigDef.Type and DescribeConfigsResponse.ConfigType in Apache Kafka; what 3.9.1 and 4.3.1 answer.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_NAMES: dict[ConfigType, str] = {
    ConfigType.BOOLEAN: """message.downconversion.enable preallocate remote.log.copy.disable
        remote.log.delete.on.disable remote.storage.enable unclean.leader.election.enable""",
    ConfigType.STRING: "compression.type message.format.version message.timestamp.type",
    ConfigType.INT: """compression.gzip.level compression.lz4.level compression.zstd.level index.interval.bytes
        max.message.bytes min.insync.replicas segment.bytes segment.index.bytes""",
    ConfigType.LONG: """delete.retention.ms file.delete.delay.ms flush.messages flush.ms local.retention.bytes
        local.retention.ms max.compaction.lag.ms message.timestamp.after.max.ms message.timestamp.before.max.ms
        message.timestamp.difference.max.ms min.compaction.lag.ms retention.bytes retention.ms segment.jitter.ms
        segment.ms""",
    ConfigType.DOUBLE: "min.cleanable.dirty.ratio",
    ConfigType.LIST: "cleanup.policy follower.replication.throttled.replicas leader.replication.throttled.replicas",
}

TOPIC_CONFIG_TYPES: Mapping[str, ConfigType] = MappingProxyType(
    {name: kind for kind, names in _NAMES.items() for name in names.split()}
)
"""By name, of every release."""
