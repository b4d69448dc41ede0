"""What a caller holds of a record, and what all records of a batch share."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Protocol, TypeAlias, final

from aioproducer.errors import KafkaError
from aioproducer.records import RecordMetadata, TopicPartition

class Tally(Protocol):
    """A number of failed records."""

    records: int

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, KafkaError | None], object]

@final
class Delivery(asyncio.Future[RecordMetadata]):
    """The handle of one record: done when the broker answered for it, or when it failed for good.

    Awaiting it (also by `gather`, `wait`, `add_done_callback`) ends the linger of its batch. Cancelling a task that
    awaits it ends that wait alone; `cancel()` cancels the handle. The record goes on either way.
    """

    @property
    def timestamp(self) -> int:
        """The record's own timestamp, milliseconds since the epoch."""
    @property
    def batch_result(self) -> BatchResult:
        """The result it belongs to now."""
    @property
    def position(self) -> int:
        """The record's index in that result."""
    def has_waiters(self) -> bool:
        """Whether somebody awaits it or left a callback."""

class BatchResult:
    """What became of one batch: set once, read by each of its deliveries.

    Records that wait in line have a result of their own, which `move`s into their batch's; so do the parts of a
    batch that was split.
    """

    loop: asyncio.AbstractEventLoop
    topic_partition: TopicPartition | None
    base_offset: int
    """Offset of the first record; -1 while unknown, with acks=0, and on failure."""
    log_append_time: int
    """Milliseconds since the epoch; -1 when the topic keeps CreateTime."""
    log_start_offset: int
    error: KafkaError | None
    """What every record of the batch gets (a fresh copy each); None: written."""
    done: bool
    wanted: bool
    """Somebody waits for a record of this batch."""
    count: int
    """Records, once done."""
    on_wanted: Callable[[BatchResult], None] | None
    """Called once, when the first waiter comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, topic_partition: TopicPartition | None) -> None: ...
    def add_callback(
        self, index: int, timestamp: int, callback: OnDelivery, context: contextvars.Context | None = None
    ) -> None:
        """Keep the `on_delivery` of record `index` and the context to call it in; its timestamp is in ms.

        Without a context, a copy of the current one is taken.
        """
    def delivery(self, index: int, timestamp: int) -> Delivery:
        """A handle for record `index`; its timestamp is in ms."""
    def complete(self, base_offset: int, log_append_time: int, log_start_offset: int, count: int) -> None:
        """The batch of `count` records is in the log."""
    def fail(self, error: KafkaError, count: int) -> None:
        """All `count` records of the batch failed with `error`."""
    def wake(self) -> None:
        """Wake those who wait and schedule callbacks, in record order; after `complete` or `fail`."""
    @property
    def has_callbacks(self) -> bool:
        """Whether there are `on_delivery` callbacks to call."""
    def take_callbacks(self) -> list[tuple[int, int, OnDelivery, contextvars.Context]]:
        """The (index, timestamp, on_delivery, context) of this batch, oldest first; the second call gives none."""
    def note_look_of(self, callback: OnDelivery, index: int) -> None:
        """A callback was told of record `index` and did not raise: if it failed, somebody has looked."""
    def metadata_of(self, index: int, timestamp: int) -> RecordMetadata:
        """What record `index` with this timestamp (ms) became."""
    def unseen(self) -> int:
        """Records that failed and that nobody looked at."""
    def count_in(self, tally: Tally) -> None:
        """Add the unseen records to a count; each is taken off when a caller looks at it later."""
    def move(self, parts: list[tuple[int, BatchResult, int]]) -> None:
        """The records live elsewhere now: (first index here, result, index there), ascending by the first."""
    @property
    def moved(self) -> bool:
        """Whether `move` was called."""
