"""What a controller checks of a topic's name, of its settings, and of the nodes that shall have its copies.

Source: Topic.validate, LogConfig and ReplicationControlManager in Apache Kafka; the texts are what 3.9.1 and 4.3.1 say.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from aioproducer.testing.model.codes import INVALID_CONFIG, INVALID_REPLICA_ASSIGNMENT, INVALID_TOPIC_EXCEPTION

_LONGEST_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NUMBER = re.compile(r"[+-]?\d+")
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class TopicRefusedError(Exception):
    """A topic cannot be made or changed like that; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_name(name: str) -> None:
    """Check what Kafka's brokers check of a topic's name.

    Raises:
        TopicRefusedError: INVALID_TOPIC_EXCEPTION.
    """
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
        raise TopicRefusedError(INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def check_assignment(nodes: Sequence[int], live_nodes: Sequence[int]) -> None:
    """Check who shall have the copies of one partition.

    Raises:
        TopicRefusedError: INVALID_REPLICA_ASSIGNMENT.
    """
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
        raise TopicRefusedError(INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {fault}.")


# Settings

_LOWEST_INTS: Mapping[str, int] = MappingProxyType(
    {
        "index.interval.bytes": 0,
        "max.message.bytes": 0,
        "min.insync.replicas": 1,
        "segment.bytes": 14,
        "segment.index.bytes": 4,
    }
)
_LOWEST_LONGS: Mapping[str, int] = MappingProxyType(
    {
        "delete.retention.ms": 0,
        "file.delete.delay.ms": 0,
        "flush.messages": 1,
        "flush.ms": 0,
        "local.retention.bytes": -2,
        "local.retention.ms": -2,
        "max.compaction.lag.ms": 1,
        "message.timestamp.after.max.ms": 0,
        "message.timestamp.before.max.ms": 0,
        "message.timestamp.difference.max.ms": 0,
        "min.compaction.lag.ms": 0,
        "retention.bytes": -_LONG_MAX - 1,
        "retention.ms": -1,
        "segment.jitter.ms": 0,
        "segment.ms": 1,
    }
)
_WORDS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "cleanup.policy": ("compact", "delete"),
        "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    }
)
_NO_TIERS = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_FLAGS = frozenset(
    ("message.downconversion.enable", "preallocate", "remote.storage.enable", "unclean.leader.election.enable")
)


def check_settings(settings: Mapping[str, str | None], known: Mapping[str, str], *, smallest_segment: int) -> None:
    """Check what is set for a topic.

    Args:
        settings: as the request has them.
        known: every name there is.
        smallest_segment: what `segment.bytes` must be at least.

    Raises:
        TopicRefusedError: INVALID_CONFIG.
    """
    for fault in _faults_of(settings, known, smallest_segment=smallest_segment):
        raise TopicRefusedError(INVALID_CONFIG, fault)


def _faults_of(settings: Mapping[str, str | None], known: Mapping[str, str], *, smallest_segment: int) -> Iterator[str]:
    """What is wrong, in the order in which Kafka looks."""
    missing = [name for name, value in settings.items() if value is None]
    if missing:
        yield f"Null value not supported for topic configs: {','.join(missing)}"
    for name, value in settings.items():
        if name not in known:
            yield f"Unknown topic config name: {name}"
        fault = _fault_of(name, (value or "").strip(), smallest_segment=smallest_segment)
        if fault:
            yield fault
    lags = {**known, **settings}
    shortest, longest = (lags[name] or "" for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if int(shortest) > int(longest):
        yield (f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})")


def _fault_of(name: str, value: str, *, smallest_segment: int) -> str | None:
    fault = None
    if name in _LOWEST_INTS:
        lowest = smallest_segment if name == "segment.bytes" else _LOWEST_INTS[name]
        fault = _fault_of_number(value, lowest, kind="INT", highest=_INT_MAX)
    elif name in _LOWEST_LONGS:
        fault = _fault_of_number(value, _LOWEST_LONGS[name], kind="LONG", highest=_LONG_MAX)
    elif name in _WORDS:
        wrong = [word.strip() for word in value.split(",") if value and word.strip() not in _WORDS[name]]
        if wrong:
            value, fault = wrong[0], f"String must be one of: {', '.join(_WORDS[name])}"
    elif name in _FLAGS and value.lower() not in {"true", "false"}:
        fault = "Expected value to be either true or false"
    if name == "remote.storage.enable" and value.lower() == "true":
        return _NO_TIERS
    return f"Invalid value {value} for configuration {name}: {fault}" if fault else None


def _fault_of_number(value: str, lowest: int, *, kind: str, highest: int) -> str | None:
    if not _NUMBER.fullmatch(value) or not -highest - 1 <= int(value) <= highest:
        return f"Not a number of type {kind}"
    return None if int(value) >= lowest else f"Value must be at least {lowest}"
