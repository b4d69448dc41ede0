"""The handle of a record, and the result that the records of a batch share."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeAlias, final

from aioproducer._sender.unseen_failures import FailureCount
from aioproducer.errors import KafkaError
from aioproducer.records import RecordMetadata, TopicPartition

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, KafkaError | None], object]

@final
class Delivery(asyncio.Future[RecordMetadata]):
    """The handle of one record: done when the broker has acknowledged it, or when it has failed.

    Awaiting it (also by `gather`, `wait`, `add_done_callback`) ends the linger of its batch. Cancelling a task that
    awaits it ends that wait alone; `cancel()` cancels the handle. The record goes on either way.
    """

    @property
    def timestamp(self) -> int:
        """The record's own timestamp, milliseconds since the epoch."""
    @property
    def _batch_result(self) -> BatchResult:
        """Its current result."""
    @property
    def _position(self) -> int:
        """The record's index in that result."""
    def _has_waiters(self) -> bool:
        """Whether it is awaited or has a callback."""

class BatchResult:
    """Result of one batch: set once, read by each of its deliveries.

    A waiting record has a result of its own, which later moves to its batch's, as do the records of a split batch.
    """

    loop: asyncio.AbstractEventLoop
    topic_partition: TopicPartition | None
    base_offset: int  # offset of the first record; -1 while unknown, with acks=0, and on failure
    log_append_time: int  # milliseconds since the epoch; -1 when the topic keeps CreateTime
    log_start_offset: int
    error: KafkaError | None  # error of every record of the batch (each gets a copy); None if written
    done: bool
    wanted: bool  # a record of this batch is awaited
    count: int  # number of records, once done
    awaited: bool  # by an `await`, in a task's own step; not by a callback
    on_wanted: Callable[[BatchResult], None] | None  # called once, when the first waiter comes

    def __init__(self, loop: asyncio.AbstractEventLoop, topic_partition: TopicPartition | None) -> None: ...
    def add_callback(
        self, index: int, timestamp: int, callback: OnDelivery, context: contextvars.Context | None = None
    ) -> None:
        """Keep the `on_delivery` of record `index` and the context to call it in; its timestamp is in ms.

        Without a context, a copy of the current one is taken.
        """
    def delivery(self, index: int, timestamp: int) -> Delivery:
        """Return a handle for record `index`; its timestamp is in ms."""
    def complete(self, base_offset: int, log_append_time: int, log_start_offset: int, count: int) -> None:
        """Note that the batch of `count` records is in the log."""
    def fail(self, error: KafkaError, count: int) -> None:
        """Note that all `count` records failed."""
    def wake(self) -> None:
        """Wake waiters and schedule callbacks, in record order; after `complete` or `fail`."""
    @property
    def has_callbacks(self) -> bool:
        """Whether there are `on_delivery` callbacks to call."""
    def take_callbacks(self) -> list[tuple[int, int, OnDelivery, contextvars.Context]]:
        """Take all (index, timestamp, on_delivery, context), oldest first."""
    def note_retrieval_of(self, callback: OnDelivery, index: int) -> None:
        """Note that a callback for record `index` has returned: a failure counts as seen."""
    def metadata_of(self, index: int, timestamp: int) -> RecordMetadata:
        """Return the metadata of record `index` with this timestamp (ms)."""
    def unseen(self) -> int:
        """Return the number of failed records that no caller has seen."""
    def count_in(self, failure_count: FailureCount) -> None:
        """Add the unseen records to a count; each is subtracted when a caller sees it later."""
    def move(self, parts: list[tuple[int, BatchResult, int]]) -> None:
        """Move the records to other results: (first index here, result, index there), ascending by the first."""
    @property
    def moved(self) -> bool:
        """Whether `move` was called."""
