"""The records of one bulk call into their batches: one native call for as many as find room."""

from collections.abc import Iterable
from typing import TypeAlias

from aioproducer._native.append import Headers, RecordAppender
from aioproducer._native.delivery import BatchResult, Delivery

Row: TypeAlias = tuple[object, object, int | None, int | None, Headers | None]
"""(value, key, partition, timestamp in ms, headers) of one record."""

class Share:
    """The records of one bulk call in one batch, in the order of the call."""

    batch_result: BatchResult
    """Of the batch; it may have moved since."""
    @property
    def first(self) -> int:
        """Position of the first of them in the batch."""
    @property
    def last(self) -> int:
        """Position of the last of them in the batch."""
    def __len__(self) -> int: ...
    def delivery(self) -> Delivery:
        """A handle of the last of them."""
    def deliveries(self) -> list[tuple[int, Delivery]]:
        """(position in the call, handle) of each."""

class BulkAppend:
    """One bulk call on its way into batches.

    Args:
        appender: of the producer.
        topic: of all rows.
        rows: read once, one after another.
    """

    position: int
    """In the call, from 0, of the row taken last; -1 before the first."""
    is_at_row: bool
    """Whether that row is not appended yet: what `run` raised was raised for it."""
    waiting: Row | None
    """The row taken last, if it must wait in line: it was not appended."""
    shares: list[Share]
    """What was appended, by batch; grows with each run."""

    def __init__(self, appender: RecordAppender, topic: str, rows: Iterable[Row]) -> None: ...
    def run(self) -> bool:
        """Append rows until all are, a row must wait, or the event loop should run once.

        Returns:
            Whether there are no more rows.

        Raises:
            TypeError, ValueError, RecordTooLargeError: an argument of the row taken last, which is not appended; the
                next call goes on behind it.
            KafkaError: the producer takes no records, or on another thread; so for the row taken last.
            Exception: whatever the rows themselves raise, when none is taken.
        """
