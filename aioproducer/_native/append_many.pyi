"""Appends the records of one bulk call: one native call for as many as have room."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from aioproducer._native.append import Headers, RecordAppender
from aioproducer._native.delivery import BatchResult, Delivery

Row: TypeAlias = tuple[object, object, int | None, int | None, Headers | None]
"""(value, key, partition, timestamp in ms, headers) of one record."""

class Share:
    """The records of one bulk call in one batch, in the order of the call."""

    batch_result: BatchResult  # the batch's result; it may have moved since
    @property
    def first(self) -> int:
        """Position of the first record in the batch."""
    @property
    def last(self) -> int:
        """Position of the last record in the batch."""
    def __len__(self) -> int: ...
    def delivery(self) -> Delivery:
        """Return a handle of the last record."""
    def deliveries(self) -> list[tuple[int, Delivery]]:
        """Return (position in the call, handle) of each record."""

class BulkAppend:
    """Appends the rows of one bulk call.

    Args:
        appender: of the producer.
        topic: of all rows.
        rows: read once, one after another.
    """

    position: int  # index of the row taken last; -1 before the first
    is_at_row: bool  # that row is not appended yet, so an error of `run` is for it
    waiting: Row | None  # the row taken last, if it must wait; it was not appended
    shares: list[Share]  # appended records by batch

    def __init__(self, appender: RecordAppender, topic: str, rows: Iterable[Row]) -> None: ...
    def run(self) -> bool:
        """Append rows until a row must wait, or the event loop should run once; return whether all rows are taken.

        Raises:
            TypeError, ValueError, RecordTooLargeError: an argument of the row taken last, which is not appended; the
                next call continues after it.
            KafkaError: the producer accepts no records, or this is another thread; for the row taken last.
            Exception: of the rows themselves, when none is taken.
        """
    def remaining(self) -> Iterator[Row]:
        """Return the rows that were not taken yet."""
