"""A record that waits, and the queue that it waits in; `wait_queues.py` has all queues."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer._accumulator.partition import Partition, RecordDeadline, Topic
    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer._timing.timers import Timer

    MemoryKey = Partition | Topic
    QueueKey = str | MemoryKey

KeyT_co = TypeVar("KeyT_co", bound="QueueKey", covariant=True)


class WaitingRecord:
    """A record that was accepted but is not in a batch yet. Its delivery's result moves to the batch's later."""

    __slots__ = (
        "blocked_topic",
        "call_order",
        "called_at",
        "choose_partition",
        "deadline",
        "deadline_timer",
        "delivery",
        "generation",
        "headers",
        "is_counted",
        "is_raised_by_its_call",
        "key",
        "on_left",
        "partition",
        "queue",
        "result",
        "since",
        "size",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(self, topic: str, result: BatchResult, *, timestamp: int, size: int, called_at: float) -> None:
        """Make a record without its content.

        Args:
            result: of its only delivery, until it joins a batch.
            timestamp: its own, ms since the epoch.
            size: most bytes it can take in a batch.
        """
        self.topic = topic
        self.result = result
        self.timestamp = timestamp
        self.size = size
        self.called_at = called_at
        self.since = called_at  # of the wait in its current queue, monotonic seconds
        self.delivery: Delivery = result.delivery(0, timestamp)
        self.value: bytes | None = None
        self.key: bytes | None = None
        self.partition: int | None = None
        self.headers: Headers | None = None
        self.choose_partition: Callable[[], int] | None = None
        self.deadline: RecordDeadline | None = None  # its own
        self.deadline_timer: Timer | None = None
        self.blocked_topic: Topic | None = None
        self.generation = 0
        self.call_order = 0
        self.is_counted = False
        self.is_raised_by_its_call = False
        self.queue: WaitQueue[QueueKey] | None = None
        self.on_left: Callable[[], None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self.queue is not None

    def block(self, topic: Topic | None) -> None:
        """Block all partitions of a topic for later records; None unblocks them."""
        if self.blocked_topic is not None:
            self.blocked_topic.unblock()
        if topic is not None:
            # Later records that name a partition must not overtake one whose partition is still to be chosen.
            topic.block()
        self.blocked_topic = topic

    def forget_content(self) -> None:
        """Free the bytes of a record that has left its queue, and its timer."""
        self.value = self.key = self.headers = self.choose_partition = None
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()


class WaitQueue(Generic[KeyT_co]):
    """Records in call order that wait for the same. A record that leaves from the middle is skipped later.

    Args:
        key: what they wait for: the metadata of a topic, by its name; or memory in a partition, or in any partition of
            a known topic.
    """

    __slots__ = ("_gone", "_records", "key", "timer")

    def __init__(self, key: KeyT_co) -> None:
        self.key = key
        self._records: deque[WaitingRecord] = deque()
        self._gone = 0
        self.timer: Timer | None = None

    def join(self, record: WaitingRecord) -> None:
        record.queue = self
        self._records.append(record)
        if not isinstance(self.key, str):
            self.key.waiting_count += 1

    def first(self) -> WaitingRecord | None:
        while self._records and self._records[0].queue is not self:
            self._records.popleft()
            self._gone -= 1
        return self._records[0] if self._records else None

    def leave(self, record: WaitingRecord) -> None:
        """Note that a record no longer waits; skipped records never outnumber the others for long."""
        record.queue = None
        if not isinstance(self.key, str):
            self.key.waiting_count -= 1
        self._gone += 1
        if self._gone * 2 > len(self._records):
            self._records = deque(record for record in self._records if record.queue is self)
            self._gone = 0

    def stop_watching(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def __iter__(self) -> Iterator[WaitingRecord]:
        return (record for record in list(self._records) if record.queue is self)

    def __len__(self) -> int:
        return len(self._records) - self._gone

    def __repr__(self) -> str:
        return f"<WaitQueue {len(self)} for {self.key!r}>"
