"""The settings of a topic, and its codec."""

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing.fake_broker.log.record_batch import HEADER_SIZE, BatchHeader, decompress, repacked
from aioproducer.testing.fake_broker.topics.config_values import config_text, config_value

_LONG_MAX = str(2**63 - 1)

BEFORE_4_0: Mapping[str, str] = MappingProxyType(
    {
        "message.downconversion.enable": "true",
        "message.format.version": "3.0-IV1",
        "message.timestamp.after.max.ms": _LONG_MAX,
        "message.timestamp.difference.max.ms": _LONG_MAX,
    }
)
"""Defaults of Kafka 3 that Kafka 4 does not have, or that differ there."""


class TopicConfig:
    """One topic's settings over the cluster's defaults."""

    def __init__(self, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        for name in overrides:
            if name not in defaults:
                raise ValueError(f"Unknown topic config name: {name}")
        self.overrides: dict[str, str] = dict(overrides)
        self._defaults = defaults
        values = self.values()
        self.max_message_bytes: int = int(values["max.message.bytes"])
        self.segment_bytes: int = int(values["segment.bytes"])
        self.segment_ms: int = int(values["segment.ms"])
        self.retention_bytes: int = int(values["retention.bytes"])
        self.min_insync_replicas: int = int(values["min.insync.replicas"])
        self.timestamp_before_max_ms: int = int(values["message.timestamp.before.max.ms"])
        self.timestamp_after_max_ms: int = int(values["message.timestamp.after.max.ms"])
        self.codec: CompressionType | None = CODECS.get(values["compression.type"])
        self.is_log_append_time: bool = values["message.timestamp.type"] == "LogAppendTime"
        self.is_compacted: bool = "compact" in values["cleanup.policy"]
        self.is_deleted_from: bool = "delete" in values["cleanup.policy"]
        self.allows_unclean_election: bool = values["unclean.leader.election.enable"] == "true"

    def values(self) -> dict[str, str]:
        """Return every setting by name, in the canonical form of its type (` TRUE ` is `true`)."""
        settings = {**self._defaults, **self.overrides}
        return {name: config_text(config_value(name, text)) for name, text in settings.items()}


CODECS: Mapping[str, CompressionType] = MappingProxyType(
    {"uncompressed": CompressionType.NONE, **{each.name.lower(): each for each in CompressionType if each}}
)
"""By what `compression.type` of a topic says; missing is `producer`, which keeps what the producer used."""


def in_codec_of_topic(batch: memoryview, header: BatchHeader, codec: CompressionType) -> memoryview:
    """Return a checked batch in the codec of its topic.

    Kafka holds both sizes against `max.message.bytes`: a batch that was small enough on the wire may be refused.

    Source: LogValidator.buildRecordsAndAssignOffsets in Apache Kafka.
    """
    records = decompress(header.codec, batch[HEADER_SIZE:])
    return memoryview(repacked(batch, codec=codec, records=compress(codec, None, records)))
