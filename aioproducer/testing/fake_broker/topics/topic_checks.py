"""A controller's checks of a topic's name, of its settings, and of the nodes for its copies.

Source: Topic.validate, LogConfig and ReplicationControlManager in Apache Kafka; the texts are what 3.9.1 and 4.3.1 say.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from aioproducer.testing.fake_broker.topics.config_values import LOWEST, ConfigValue, config_text, config_value
from aioproducer.testing.fake_broker.wire import codes

_LONGEST_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicRefusedError(Exception):
    """A topic cannot be created or changed like that; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_name(name: str) -> None:
    fault = None
    if not name:
        fault = "the empty string is not allowed"
    elif name in {".", ".."}:
        fault = f"'{name}' is not allowed"
    elif len(name) > _LONGEST_NAME:
        fault = f"the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _LEGAL_NAME.fullmatch(name):
        fault = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if fault:
        raise TopicRefusedError(codes.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def check_assignment(nodes: Sequence[int], live_nodes: Sequence[int]) -> None:
    fault = None
    stranger = next((node for node in nodes if node not in live_nodes), None)
    twice = next((node for node in nodes if nodes.count(node) > 1), None)
    if not nodes:
        fault = "an empty replica list"
    elif stranger is not None:
        fault = f"broker {stranger}, but no such broker is registered"
    elif twice is not None:
        fault = f"the broker {twice} more than once"
    if fault:
        raise TopicRefusedError(codes.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {fault}.")


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
