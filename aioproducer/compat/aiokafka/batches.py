"""aiokafka's batches made by hand, and the futures of their records: for `create_batch` and `send_batch`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aioproducer.compat.aiokafka.errors import set_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.records import RecordMetadata


AiokafkaSerializer: TypeAlias = Callable[[Any], object]  # type: ignore[explicit-any]  # a function says which type it takes
"""A serializer of a key or a value; also called with None, as aiokafka does."""


class BatchRecord(NamedTuple):
    """One record of a batch, ready to be sent."""

    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]


class AppendedRecord(Protocol):
    """The result of `append`; aiokafka's own object."""

    offset: int
    """In the batch, from 0."""

    crc: int | None
    size: int

    timestamp: int
    """Milliseconds since 1970."""


class BatchBuilder:
    """Collects records until a batch of aiokafka's would be full; made by `AIOKafkaProducer.create_batch`.

    Args:
        batch_size: bytes.
        key_serializer: None takes bytes.
        value_serializer: None takes bytes.
    """

    def __init__(
        self,
        batch_size: int,
        *,
        key_serializer: AiokafkaSerializer | None = None,
        value_serializer: AiokafkaSerializer | None = None,
    ) -> None:
        # aiokafka's own, so that sizes, limits and refusals are too; it holds the bytes a second time
        self._gauge = DefaultRecordBatchBuilder(
            2, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=0, batch_size=batch_size
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._is_closed = False
        self.records: list[BatchRecord] = []
        """In the order of `append`."""

    def append(
        self, *, timestamp: int | None, key: object, value: object, headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> AppendedRecord | None:
        """Add a record; returns None if the batch is full or closed, without the record.

        Args:
            timestamp: milliseconds since 1970; None is now.
            key: bytes, or what `key_serializer` takes.
            value: bytes, or what `value_serializer` takes.
            headers: (str, bytes) pairs.

        Raises:
            ValueError: a timestamp below zero, before `send_batch` can send the records before it.
            TypeError: as aiokafka's.
        """
        if self._is_closed:
            return None
        if isinstance(timestamp, int | float) and timestamp < 0:
            raise ValueError(f"timestamp must be 0 or more milliseconds since the epoch, got {timestamp!r}")
        key_part = serialized(self._key_serializer, key)
        value_part = serialized(self._value_serializer, value)
        pairs = list(headers or ())
        appended: AppendedRecord | None = self._gauge.append(
            len(self.records), timestamp, key=key_part, value=value_part, headers=pairs
        )
        if appended is None:
            self.close()
            return None
        self.records.append(BatchRecord(_kept(value_part), _kept(key_part), appended.timestamp, pairs))
        return appended

    def close(self) -> None:
        """Take no more records."""
        self._is_closed = True

    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._is_closed

    def size(self) -> int:
        """Bytes, as aiokafka counts them."""
        size: int = self._gauge.size()
        return size

    def record_count(self) -> int:
        """Records in it."""
        return len(self.records)

    def largest(self) -> int:
        """Bytes of its largest record as the producer counts them before it compares with `max_request_size`."""
        return max(map(_most_bytes, self.records), default=0)


def _most_bytes(record: BatchRecord) -> int:
    """Return what `RecordAppender` counts for a record: as aiokafka, but five bytes for each of two lengths."""
    without: int = DefaultRecordBatchBuilder.estimate_size_in_bytes(None, None, record.headers)
    lengths = 2 * 5 - 2  # aiokafka counts one byte for the length of None
    return without + lengths + len(record.key or b"") + len(record.value or b"")


def serialized(serializer: AiokafkaSerializer | None, part: object) -> object:
    """Turn a key or a value into bytes as aiokafka does: also None, and errors as they are.

    aiokafka takes every object with a buffer, such as an array of numpy's. What has none is returned as it is.
    """
    made = part if serializer is None else serializer(part)
    if made is None or isinstance(made, bytes | bytearray | memoryview | str):
        return made
    try:
        return bytes(memoryview(cast("bytes", made)))  # `bytes(made)` would be that many zeros for a number of numpy's
    except TypeError:
        return made


def _kept(part: object) -> bytes | None:
    """Copy what may change until the batch is sent; a record is what it was when it was appended."""
    return part if part is None or isinstance(part, bytes) else bytes(cast("bytearray | memoryview", part))


def let_go(futures: Iterable[asyncio.Future[RecordMetadata]]) -> None:
    """Cancel futures that no caller gets, because the call raises; mark their exceptions as retrieved."""
    for future in futures:
        if not future.cancel():
            future.exception()


def tell_first(promised: asyncio.Future[RecordMetadata], gathered: asyncio.Future[list[RecordMetadata]]) -> None:
    """Give a batch's future the metadata of its first record, or the first error."""
    error = gathered.exception()
    if promised.done():  # cancelled
        return
    if error is not None:
        set_error(promised, error)
    else:
        found = gathered.result()
        promised.set_result(cast("RecordMetadata", found[0] if found else None))
