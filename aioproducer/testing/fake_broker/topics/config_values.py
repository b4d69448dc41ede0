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
