"""Code and headers of the user: an interceptor and a partitioner that may fail, and headers of all sizes."""

from collections.abc import Callable
from random import Random
from typing import Final

from aioproducer.cluster import Cluster
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition
from tests.programs.simulation.history import Story

_DROPS = 0.03
_FAILS = 0.03


class UsersInterceptor(ProducerInterceptor):
    """Looks at all records, and changes none."""

    def __init__(self, chance: Random, *, errs: bool = True) -> None:
        self._chance = chance
        self._errs = errs
        self._passed = 0
        self._told = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        if self._errs and self._chance.random() < _DROPS:
            return None
        self._passed += 1
        self._fail()
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        """Count a record that was delivered."""
        del metadata, headers
        self._told += 1
        self._fail()

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        del topic_partition, error, headers
        self._told += 1
        self._fail()

    def check(self, violated: Callable[[str, str], None]) -> None:
        """ENDS_ONCE: each passed record is notified once; call it when all have ended."""
        if self._told != self._passed:
            violated("ENDS_ONCE", f"the interceptor let {self._passed} records pass, and was told of {self._told} ends")

    def _fail(self) -> None:
        if self._errs and self._chance.random() < _FAILS:
            raise RuntimeError("the caller's own interceptor fails")


# A partitioner of the user's own: it puts records anywhere, and may fail or name partitions that do not exist.

_NAMES_NONE = 0.03


class UsersPartitioner:
    """Chooses by chance."""

    def __init__(self, chance: Random, *, errs: bool) -> None:
        self._chance = chance
        self._errs = errs

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return a partition; the number behind the last now and then, if it errs."""
        del key, key_bytes, value, value_bytes
        count = cluster.partition_count(topic)
        assert count is not None, "the partitioner was asked before the topic was known"
        dice = self._chance.random() if self._errs else 1.0
        if dice < _FAILS:
            raise RuntimeError("the caller's own partitioner fails")
        return count if dice < _FAILS + _NAMES_NONE else self._chance.randrange(count)


# Headers of records: none, one or several, short and long, with and without a value.

_NAMES: Final = ("trace", "", "\u00e9t\u00e9", "n" * 63, "n" * 64)
"""Among them those whose lengths are the last of one byte, and the first of two."""

_LONGEST: Final = 300


def headers_for(story: Story) -> tuple[tuple[str, bytes | None], ...]:
    number = story.record.number
    return tuple(
        (_NAMES[(number + each) % len(_NAMES)], None if (number + each) % 7 == 0 else _value(number, each))
        for each in range(number % 4)
    )


def _value(number: int, each: int) -> bytes:
    return b"%d.%d" % (number, each) * (number * 13 % _LONGEST // 8)
