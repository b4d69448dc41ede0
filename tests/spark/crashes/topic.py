"""A topic as a reader sees it that is not ours: confluent-kafka, read_committed."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS = 3


@dataclass(frozen=True)
class Rows:
    """What a topic has of the rows 0, 1, 2, ...

    Attributes:
        counts: of each row.
        open_partitions: a read_committed reader stands behind an open transaction there.
    """

    counts: Counter[int]
    open_partitions: tuple[int, ...]

    @property
    def end(self) -> int:
        """One more than the highest row."""
        return max(self.counts, default=-1) + 1

    def missing(self, rows: int) -> int:
        """How many of the first `rows` are not there."""
        return sum(number not in self.counts for number in range(rows))


class Topic:
    """One topic of a case.

    Args:
        bootstrap_servers: of the cluster.
        name: of the topic; it is made by `create`.
    """

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self._bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers}
        self.name = name

    def create(self) -> None:
        admin = AdminClient(self._bootstrap)  # must live until the answer is there
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)

    def fill(self, rows: Iterable[int]) -> None:
        """Write rows without any transaction."""
        producer = Producer(self._bootstrap)
        for number in rows:
            producer.produce(self.name, str(number).encode(), partition=number % PARTITIONS)
        producer.flush(30)

    def read(self) -> Rows:
        """Read all that is committed."""
        return Rows(self._counts(), tuple(self._open_partitions()))

    def _counts(self) -> Counter[int]:
        consumer = Consumer(
            {
                **self._bootstrap,
                "group.id": str(uuid.uuid4()),
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.name, number, 0) for number in range(PARTITIONS)])
        unread, counts = set(range(PARTITIONS)), Counter[int]()
        with contextlib.closing(consumer):
            while unread:
                messages = consumer.consume(1_000, 1.0)
                counts.update(int(each.value()) for each in messages if each.error() is None)
                ends = (each for each in messages if is_end(each))
                unread.difference_update(each.partition() for each in ends)
        return counts

    def _open_partitions(self) -> Iterable[int]:
        stable, highest = (
            self._ends(level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        return (number for number in range(PARTITIONS) if stable[number] != highest[number])

    def _ends(self, level: IsolationLevel) -> list[int]:
        wanted = {TopicPartition(self.name, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        admin = AdminClient(self._bootstrap)
        found = admin.list_offsets(wanted, isolation_level=level)
        return [found[each].result(30).offset for each in wanted]


def is_end(message: Message) -> bool:
    """Tell whether this says that a partition has no more."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
