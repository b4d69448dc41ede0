"""The types of a topic's settings, and texts as values of these types.

Source: ConfigDef.parseType and convertToString in Apache Kafka. Where Java's numbers are more than digits, these are
not: digits of other scripts, hexadecimal doubles and NaN are refused.
"""

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias


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
    file.delete.delay.ms                    LONG    60000        0
    flush.messages                          LONG    MAX          1
    flush.ms                                LONG    MAX          0
    follower.replication.throttled.replicas LIST    ""
    index.interval.bytes                    INT     4096         0
    leader.replication.throttled.replicas   LIST    ""
    local.retention.bytes                   LONG    -2           -2
    local.retention.ms                      LONG    -2           -2
    max.compaction.lag.ms                   LONG    MAX          1
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
# name, type, default (-: in Kafka 3 only), lowest value

_ROWS = [row.split() for row in _TABLE.strip().splitlines()]

TOPIC_CONFIG_TYPES: Mapping[str, ConfigType] = MappingProxyType({name: ConfigType[kind] for name, kind, *_ in _ROWS})
"""By name, of every release."""

TOPIC_CONFIG_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {name: {"MAX": str(2**63 - 1), '""': ""}.get(default, default) for name, _, default, *_ in _ROWS if default != "-"}
)
"""By name, those of Kafka 4.3.1. The model acts on `cleanup.policy` (compact: null keys are refused),
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


def _int(text: str) -> int:
    if (number := whole_number(text, INT_MAX)) is None:
        raise ValueError("Not a number of type INT")
    return number


def _long(text: str) -> int:
    if (number := whole_number(text, _LONG_MAX)) is None:
        raise ValueError("Not a number of type LONG")
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
        ConfigType.INT: _int,
        ConfigType.LONG: _long,
        ConfigType.DOUBLE: _double,
        ConfigType.LIST: _words,
    }
)
