"""The settings of a topic: their types and values, a controller's checks of them, and the topic's codec.

Where Java's numbers are more than digits, these are not: digits of other scripts, hexadecimal doubles and NaN are
refused. The texts are what 3.9.1 and 4.4.0 say.

Source: LogConfig, ConfigDef.parseType and convertToString in Apache Kafka.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing.fake_broker.log.record_batch import HEADER_SIZE, BatchHeader, decompress, repacked
from aioproducer.testing.fake_broker.wire import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_LONG_MAX_TEXT = str(2**63 - 1)

BEFORE_4_0: Mapping[str, str] = MappingProxyType(
    {
        "message.downconversion.enable": "true",
        "message.format.version": "3.0-IV1",
        "message.timestamp.after.max.ms": _LONG_MAX_TEXT,
        "message.timestamp.difference.max.ms": _LONG_MAX_TEXT,
    }
)
"""Defaults of Kafka 3 that Kafka 4 does not have, or that differ there."""

SINCE_4_4: Mapping[str, str] = MappingProxyType(
    {
        "errors.deadletterqueue.group.enable": "false",
        "max.decompressed.message.bytes": "2147483639",
        "remote.copy.lag.bytes": "-1",
        "remote.copy.lag.ms": "0",
    }
)
"""Defaults of settings that came with Kafka 4.4; the model does not act on them."""


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


class TopicRefusedError(Exception):
    """A topic cannot be created or changed like that; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_settings(settings: Mapping[str, str | None], known: Mapping[str, str], *, smallest_segment: int) -> None:
    """Check the settings of a topic; `known` has every name."""
    for fault in _faults_of(settings, known, smallest_segment=smallest_segment):
        raise TopicRefusedError(codes.INVALID_CONFIG, fault)


def _faults_of(settings: Mapping[str, str | None], known: Mapping[str, str], *, smallest_segment: int) -> Iterator[str]:
    """Yield what is wrong, in the order in which Kafka checks."""
    missing = [name for name, value in settings.items() if value is None]
    if missing:
        yield f"Null value not supported for topic configs: {','.join(missing)}"
    for name, value in settings.items():
        if name not in known:
            yield f"Unknown topic config name: {name}"
            return
        fault = _fault_of(name, value or "", smallest_segment=smallest_segment)
        if fault:
            yield fault
    lags = {**known, **settings}
    shortest, longest = (cast("int", config_value(name, lags[name] or "")) for name in _LAGS)
    if shortest > longest:
        yield (f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})")


def _fault_of(name: str, text: str, *, smallest_segment: int) -> str | None:
    try:
        value = config_value(name, text)
    except ValueError as wrong_type:
        return f"Invalid value {text} for configuration {name}: {wrong_type}"
    if name == "remote.storage.enable" and value is True:
        return _NO_TIERS
    if isinstance(value, int | float):
        lowest = smallest_segment if name == "segment.bytes" else LOWEST.get(name, value)
        fault = _fault_of_number(name, value, lowest)
    else:
        value, fault = _fault_of_words(name, value)
    return f"Invalid value {config_text(value)} for configuration {name}: {fault}" if fault else None


def _fault_of_number(name: str, value: float, lowest: float) -> str | None:
    if name == "compression.gzip.level" and value not in _GZIP_LEVELS:
        return "Value must be between 1 and 9 or equal to -1"
    if value < lowest:
        return f"Value must be at least {lowest}"
    return f"Value must be no more than {_HIGHEST[name]}" if value > _HIGHEST.get(name, value) else None


def _fault_of_words(name: str, value: str | tuple[str, ...]) -> tuple[ConfigValue, str | None]:
    """Return the rejected part and what is wrong with it."""
    words = (value,) if isinstance(value, str) else value
    if name in _WORDS:
        wrong = [word for word in words if word not in _WORDS[name]]
        return (wrong[0], f"String must be one of: {', '.join(_WORDS[name])}") if wrong else (value, None)
    if name == "message.format.version":
        return value, None if _FORMAT_VERSION.fullmatch(words[0]) else f"Version {words[0]} is not a valid version"
    if words[:1] == ("*",) or all(map(_THROTTLED.fullmatch, words)):
        return value, None
    return f"[{', '.join(words)}]", (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_TABLE = """
    cleanup.policy                          LIST    delete
    compression.gzip.level                  INT     -1
    compression.lz4.level                   INT     9            1
    compression.type                        STRING  producer
    compression.zstd.level                  INT     3            -131072
    delete.retention.ms                     LONG    86400000     0
    errors.deadletterqueue.group.enable     BOOLEAN -
    file.delete.delay.ms                    LONG    60000        0
    flush.messages                          LONG    MAX          1
    flush.ms                                LONG    MAX          0
    follower.replication.throttled.replicas LIST    ""
    index.interval.bytes                    INT     4096         0
    leader.replication.throttled.replicas   LIST    ""
    local.retention.bytes                   LONG    -2           -2
    local.retention.ms                      LONG    -2           -2
    max.compaction.lag.ms                   LONG    MAX          1
    max.decompressed.message.bytes          INT     -            1
    max.message.bytes                       INT     1048588      0
    message.downconversion.enable           BOOLEAN -
    message.format.version                  STRING  -
    message.timestamp.after.max.ms          LONG    3600000      0
    message.timestamp.before.max.ms         LONG    MAX          0
    message.timestamp.difference.max.ms     LONG    -            0
    message.timestamp.type                  STRING  CreateTime
    min.cleanable.dirty.ratio               DOUBLE  0.5          0
    min.compaction.lag.ms                   LONG    0            0
    min.insync.replicas                     INT     1            1
    preallocate                             BOOLEAN false
    remote.copy.lag.bytes                   LONG    -            -1
    remote.copy.lag.ms                      LONG    -            -1
    remote.log.copy.disable                 BOOLEAN false
    remote.log.delete.on.disable            BOOLEAN false
    remote.storage.enable                   BOOLEAN false
    retention.bytes                         LONG    -1
    retention.ms                            LONG    604800000    -1
    segment.bytes                           INT     1073741824
    segment.index.bytes                     INT     1048576      4
    segment.jitter.ms                       LONG    0            0
    segment.ms                              LONG    604800000    1
    unclean.leader.election.enable          BOOLEAN false
"""
# name, type, default (-: not in every release), lowest value

_ROWS = [row.split() for row in _TABLE.strip().splitlines()]

TOPIC_CONFIG_TYPES: Mapping[str, ConfigType] = MappingProxyType({name: ConfigType[kind] for name, kind, *_ in _ROWS})
"""By name, of every release."""

TOPIC_CONFIG_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {name: {"MAX": str(2**63 - 1), '""': ""}.get(default, default) for name, _, default, *_ in _ROWS if default != "-"}
)
"""By name, those of Kafka 4.0 and newer. The model acts on `cleanup.policy` (compact: null keys are refused),
`compression.type`, `max.message.bytes`, the three `message.timestamp.*`, `min.insync.replicas`, `retention.bytes`,
`segment.bytes` (largest batch) and `unclean.leader.election.enable`; the rest is only kept and described."""

LOWEST: Mapping[str, int] = MappingProxyType({row[0]: int(row[3]) for row in _ROWS if len(row) > 3})  # noqa: PLR2004  # as above

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...]

INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
# No more digits than a LONG has: Python's int() raises ValueError for thousands of them.
_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,19})")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")


def trimmed(text: str) -> str:
    """Strip what Java's `String.trim` strips, which is less than `str.strip` does."""
    return text.strip(_BLANKS)


def whole_number(text: str, highest: int) -> int | None:
    """Return the decimal number, None if the text is not one or it exceeds Java's type up to `highest`."""
    written = _WHOLE.fullmatch(text)
    number = int("".join(written.groups())) if written else None
    return number if number is not None and -highest - 1 <= number <= highest else None


@lru_cache
def config_value(name: str, text: str) -> ConfigValue:
    """Return a setting as a value of its type; ValueError, with Kafka's text, if it is of another."""
    return _PARSERS[TOPIC_CONFIG_TYPES[name]](trimmed(text))


def config_text(value: ConfigValue) -> str:
    """Return a value as a broker describes it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return str(value)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _whole(kind: str, highest: int, text: str) -> int:
    if (number := whole_number(text, highest)) is None:
        raise ValueError(f"Not a number of type {kind}")
    return number


def _double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError("Not a number of type DOUBLE")
    return float(text.rstrip("dDfF"))


def _words(text: str) -> tuple[str, ...]:
    return tuple(map(trimmed, text.split(","))) if text else ()


_PARSERS: Mapping[ConfigType, Callable[[str], ConfigValue]] = MappingProxyType(
    {
        ConfigType.BOOLEAN: _boolean,
        ConfigType.STRING: str,
        ConfigType.INT: partial(_whole, "INT", INT_MAX),
        ConfigType.LONG: partial(_whole, "LONG", _LONG_MAX),
        ConfigType.DOUBLE: _double,
        ConfigType.LIST: _words,
    }
)


# Settings: what is checked of a value of the right type

_HIGHEST: Mapping[str, int] = MappingProxyType(
    {"compression.lz4.level": 17, "compression.zstd.level": 22, "min.cleanable.dirty.ratio": 1}
)
_GZIP_LEVELS = frozenset((-1, *range(1, 10)))
_WORDS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "cleanup.policy": ("compact", "delete"),
        "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    }
)
_FORMAT_VERSION = re.compile(r"(0\.8\.[0-2]|0\.9\.0|0\.10\.[0-2]|0\.11\.0|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)(-IV[0-9])?")
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_NO_TIERS = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
