"""Partitioners, which choose the partition of a record that does not name one.

Without a partitioner of the user's, native code chooses as Kafka does: by the murmur2 hash of the key, or, for records
without a key, one partition after another, each for a batch's worth of bytes. A partitioner costs a Python call per
record.

Source: org.apache.kafka.clients.producer.{Partitioner,RoundRobinPartitioner},
BuiltInPartitioner.partitionForKey, Utils.murmur2.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

from aioproducer._native.append import hash_partition

if TYPE_CHECKING:
    from aioproducer.cluster import Cluster

_CRC32: Final = 1
_FNV1A: Final = 2
_MASK = 0xFFFFFFFF  # murmur2 counts in 32 bits
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_POSITIVE = 0x7FFFFFFF  # Kafka's toPositive: drops the sign bit, does not negate


@runtime_checkable
class Partitioner(Protocol):
    """Chooses partitions. Must not block and must not be `async`.

    Two more methods are called if they exist: `on_new_batch(topic, cluster, previous_partition)` after a batch was
    closed, since the next one may go to another partition, and `close()`.
    """

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return the partition, between 0 and the topic's partition count - 1.

        Args:
            topic: its partitions are known: `cluster.partition_count(topic)` is not `None`.
            key: before serialization.
            key_bytes: after serialization.
            value: before serialization.
            value_bytes: after serialization.
            cluster: the known brokers, topics and leaders.
        """
        ...


class RoundRobinPartitioner:
    """Uses the partitions of each topic in turn, from partition 0, regardless of keys; skips those without a leader."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}  # by topic

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002  # the turn alone decides
        key_bytes: bytes | None,  # noqa: ARG002
        value: object,  # noqa: ARG002
        value_bytes: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Return the next partition that has a leader, or the next one if none has."""
        count = cluster.partition_count(topic) or 1
        turn = self._next.get(topic, 0)
        for step in range(count):
            choice = (turn + step) % count
            if cluster.leader_of(topic, choice) is not None:
                self._next[topic] = choice + 1
                return choice
        self._next[topic] = turn + 1
        return turn % count


class _HashPartitioner:
    """Base class of the partitioners that differ from Kafka's in the hash alone."""

    _kind: ClassVar[int]

    def __init__(self) -> None:
        self._keyless = RoundRobinPartitioner()

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return the partition of a key; for use in other partitioners, since a producer chooses natively."""
        if key_bytes is None or (not key_bytes and self._kind == _CRC32):
            return self._keyless.partition(topic, key, key_bytes, value, value_bytes, cluster)
        return hash_partition(self._kind, bytes(key_bytes), cluster.partition_count(topic) or 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ConsistentRandomPartitioner(_HashPartitioner):
    """Uses the CRC-32 of the key, as `consistent_random`, the default of librdkafka and all clients built on it.

    Native: it costs nothing per record. Records without a key, or with an empty one, go to one partition after another,
    each for a batch's worth of bytes.
    """

    _kind = _CRC32


class Fnv1aPartitioner(_HashPartitioner):
    """Uses the FNV-1a hash of the key, as sarama's default partitioner and librdkafka's `fnv1a_random`.

    Native: it costs nothing per record. Records without a key go to one partition after another, each for a batch's
    worth of bytes.
    """

    _kind = _FNV1A


def native_hash(partitioner: object) -> int | None:
    """Return the hash by which native code chooses in place of a partitioner; None if it must be called."""
    kinds: dict[type[object], int] = {ConsistentRandomPartitioner: _CRC32, Fnv1aPartitioner: _FNV1A}
    return kinds.get(type(partitioner))


def partition_for_key(key_bytes: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's Java client chooses for a key; for use in other partitioners.

    Args:
        key_bytes: the serialized key.
        partition_count: at least 1.

    Raises:
        TypeError: the key is not bytes.
        ValueError: there is no partition to choose.
    """
    if not isinstance(key_bytes, bytes | bytearray | memoryview):
        raise TypeError(f"key_bytes must be bytes, the serialized key, not {type(key_bytes).__name__}")
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, not {partition_count}")
    return (murmur2(key_bytes) & _POSITIVE) % partition_count


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 hash of the bytes, unsigned."""
    whole = len(data) & ~3
    result = _SEED ^ len(data)
    for at in range(0, whole, 4):
        result = (result * _MULTIPLIER & _MASK) ^ _mixed(int.from_bytes(data[at : at + 4], "little"))
    if whole < len(data):
        result = (result ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    result ^= result >> 13
    result = result * _MULTIPLIER & _MASK
    return result ^ (result >> 15)


def check_partitioner(partitioner: object) -> None:
    """Refuse an invalid partitioner.

    Raises:
        TypeError: no `partition` method, a class instead of an instance, or async.
    """
    if isinstance(partitioner, type):
        raise TypeError(f"partitioner must be an instance: {partitioner.__name__}(), not the class itself")
    for name in ("partition", "on_new_batch", "close"):
        # The name of another client's partitioner: text has a method `partition` too.
        method = None if isinstance(partitioner, str | bytes | bytearray) else getattr(partitioner, name, None)
        if method is None and name != "partition":
            continue
        if not callable(method):
            raise TypeError(
                "partitioner must be an object with partition(topic, key, key_bytes, value, value_bytes, cluster), "
                f"not {type(partitioner).__name__}"
            )
        if inspect.iscoroutinefunction(method):
            raise TypeError(f"partitioner.{name} must not be async: the choice is made at the call")


def check_choice(partitioner: object, choice: object, *, topic: str, partition_count: int) -> int:
    """Return a partitioner's choice as a plain `int`.

    Raises:
        ValueError: not an `int`, a `bool`, or out of range; names the partitioner.
    """
    name = type(partitioner).__name__
    if not isinstance(choice, int) or isinstance(choice, bool):
        raise ValueError(f"{name}.partition returned {choice!r} for topic {topic!r}; it must return an int")  # noqa: TRY004  # the caller's arguments were fine
    if not 0 <= choice < partition_count:
        raise ValueError(
            f"{name}.partition returned {choice} for topic {topic!r}, which has partitions 0 to {partition_count - 1}"
        )
    return int(choice)


def _mixed(word: int) -> int:
    word = word * _MULTIPLIER & _MASK
    word ^= word >> 24
    return word * _MULTIPLIER & _MASK
