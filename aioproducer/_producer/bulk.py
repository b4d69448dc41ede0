"""`send_many`: makes rows of its columns, appends them, and gathers the result.

Records are appended as single ones are, many of them in one native call (`_native/append_many.pyx`). One object holds
the result of all: how many were delivered, the range of offsets in each partition, and the error of each other record.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._sender.completion import error_of_refused
from aioproducer._shown_values import in_any_state
from aioproducer.errors import (
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    SerializationError,
    TransactionError,
    UndeliveredError,
)
from aioproducer.records import normalize_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import BulkAppend, Row, Share
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer.records import TopicPartition

    EnqueueRow: TypeAlias = Callable[[object, object, int | None, int | None, Headers | None], Awaitable[Delivery]]
    FailUnseen: TypeAlias = Callable[[KafkaError, int], BatchResult]
    Column: TypeAlias = Iterable[object] | AsyncIterable[object]

_OF_ALL_BEHIND: Final = (IllegalStateError, TransactionError, MetadataTimeoutError, BufferTimeoutError)
"""Errors that the records behind one would meet too."""

REFUSALS_PER_TURN: Final = 256


class OffsetRange(NamedTuple):
    """The offsets of one call's records in one partition; records of others may lie between."""

    first: int
    """-1 if a broker did not give the offset of some of them: with `acks=0`, or for a duplicate of an old batch."""

    last: int
    """-1 if `first` is."""

    records: int
    """Number of records of this call in the partition."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of one `send_many`."""

    delivered: int
    """Number of acknowledged records."""

    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    """Their offsets, by partition."""

    errors: Mapping[int, KafkaError | TypeError | ValueError] = field(default_factory=dict)
    """Errors of the other records, by position in the call, from 0, in that order."""

    @property
    def failed(self) -> int:
        """Number of records that were not acknowledged."""
        return len(self.errors)

    def raise_for_errors(self) -> None:
        """Raise if a record was not delivered.

        Raises:
            UndeliveredError: with at most 100 of the errors, and the count.
        """
        if self.errors:
            errors = [error_of_refused(error) for error in self.errors.values()]
            undelivered = UndeliveredError.of(errors, count=len(errors))
            raise undelivered


class BulkDelivery:
    """The accepted records of one `send_many`; `await` it for the `BulkResult`.

    Awaiting does not raise for failed records: the result holds their errors. Not awaited, the next `flush` or `close`
    raises their failures, as those of any record, and those of refused records unless `refused` was read. Cancelling
    the wait does not recall records.
    """

    __slots__ = ("_deliveries", "_followed", "_refused", "_shares", "_unseen")

    def __init__(self, shares: list[Share] | None = None) -> None:
        self._shares = [] if shares is None else shares
        self._deliveries: dict[int, Delivery] = {}
        self._followed: dict[Share, Delivery] = {}  # one per share, however often it is awaited
        self._refused: dict[int, KafkaError | TypeError | ValueError] = {}
        self._unseen: list[BatchResult] = []  # of refused records, until `refused` is read

    @property
    def accepted(self) -> int:
        """Number of accepted records."""
        return len(self._deliveries) + sum(map(len, self._shares))

    @property
    def accepted_by_partition(self) -> Mapping[TopicPartition, int]:
        """Number of accepted records in each partition."""
        counts: Counter[TopicPartition] = Counter()
        results = [(share.batch_result, len(share)) for share in self._shares]
        results += [(delivery._batch_result, 1) for delivery in self._deliveries.values()]
        for result, records in results:
            assert result.topic_partition is not None, "accepted records have a partition"
            counts[result.topic_partition] += records
        return counts

    @property
    def refused(self) -> Mapping[int, KafkaError | TypeError | ValueError]:
        """Errors of refused records, as `enqueue` raises them, by position in the call."""
        self._look_at_refused()
        return self._refused

    def done(self) -> bool:
        """Whether every record has ended."""
        return all(delivery.done() for delivery in self._ends())

    def _take(self, position: int, delivery: Delivery) -> None:
        self._deliveries[position] = delivery

    def _refuse(self, position: int, error: KafkaError | TypeError | ValueError) -> None:
        self._refused[position] = error

    def _note_unseen(self, result: BatchResult) -> None:
        self._unseen.append(result)

    def _look_at_refused(self) -> None:
        unseen, self._unseen = self._unseen, []
        for result in unseen:
            for index in range(result.unseen()):
                result.delivery(index, -1).exception()

    def __await__(self) -> Generator[object, None, BulkResult]:
        """Wait until every record has ended."""
        return self._wait().__await__()

    async def _wait(self) -> BulkResult:
        while pending := [delivery for delivery in self._ends() if not delivery.done()]:
            loop = asyncio.get_running_loop()
            if pending[0].get_loop() is not loop:
                text = "the result of send_many is awaited on another event loop than the one that accepted its records"
                raise IllegalStateError(text)
            all_done = _AllDone(len(pending), loop)
            for delivery in pending:
                delivery.add_done_callback(all_done)  # which ends its linger, one batch after another
            try:
                await all_done.reached  # in any order; meanwhile, batches may be split
            finally:
                for delivery in pending:
                    delivery.remove_done_callback(all_done)
        return self._result()

    def _ends(self) -> Iterator[Delivery]:
        """Yield one delivery per batch."""
        self._follow_moved()
        for share in self._shares:
            if share not in self._followed:
                self._followed[share] = share.delivery()
        yield from [*self._followed.values()]
        last_of = {delivery._batch_result: delivery for delivery in self._deliveries.values()}
        yield from last_of.values()

    def _follow_moved(self) -> None:
        """Follow the records of a batch that was split one by one."""
        if any(share.batch_result.moved for share in self._shares):
            for share in self._shares:
                if share.batch_result.moved:
                    self._followed.pop(share, None)
                    self._deliveries.update(share.deliveries())
            self._shares = [share for share in self._shares if not share.batch_result.moved]

    def _result(self) -> BulkResult:
        """Compute the result per batch; only failed batches are read record by record."""
        self._look_at_refused()
        self._follow_moved()
        offsets: dict[TopicPartition, OffsetRange] = {}
        errors = dict(self._refused)
        for share in self._shares:
            if share.batch_result.error is None:
                _count(offsets, share.batch_result, first=share.first, last=share.last, records=len(share))
            else:
                errors |= _failures(share.deliveries())
        for result, members in self._members().items():
            if result.error is None:
                first, last = members[0][1]._position, members[-1][1]._position
                _count(offsets, result, first=first, last=last, records=len(members))
            else:
                errors |= _failures(members)
        delivered = sum(found.records for found in offsets.values())
        return BulkResult(delivered, offsets, dict(sorted(errors.items())))

    def _members(self) -> dict[BatchResult, list[tuple[int, Delivery]]]:
        members: dict[BatchResult, list[tuple[int, Delivery]]] = {}
        for position, delivery in sorted(self._deliveries.items()):
            members.setdefault(delivery._batch_result, []).append((position, delivery))
        return members

    @in_any_state
    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<BulkDelivery accepted={self.accepted} refused={len(self._refused)} {state}>"


async def append_all(
    many: BulkAppend, enqueue: EnqueueRow, *, is_open: Callable[[], bool], fail_unseen: FailUnseen
) -> BulkDelivery:
    """Append records by native calls, each of which takes all rows that need not wait; otherwise as `enqueue_all`.

    Args:
        many: the rows, for a producer that runs no code of the user's.
        enqueue: takes one row that must wait.
        is_open: returns whether their transaction still takes records.
        fail_unseen: keeps the errors of refused records for the next flush.

    Raises:
        IllegalStateError: the producer takes no more records, and has accepted none of these.
        KafkaError, TypeError, ValueError: raised by the iterator of rows; errors of rows are in the result.
    """
    bulk = BulkDelivery(many.shares)
    admitting = _Admitting(bulk, enqueue, fail_unseen)
    is_over = False
    while is_open() and not (is_over or admitting.has_ended):
        try:
            is_over = many.run()
        except (KafkaError, TypeError, ValueError) as error:
            if not many.is_at_row:  # the rows themselves raised it
                raise
            admitting.refuse(many.position, error)
            await admitting.pause()
            continue
        if many.waiting is not None:
            await admitting.admit(many.position, many.waiting)
        elif not is_over:
            await asyncio.sleep(0)  # so that the sender works meanwhile
    for position, row in enumerate(many.remaining(), many.position + 1):
        await admitting.admit(position, row)
    admitting.finish()
    return bulk


async def enqueue_all(
    rows: Iterable[Row] | AsyncIterator[Row], enqueue: EnqueueRow, *, fail_unseen: FailUnseen
) -> BulkDelivery:
    """Enqueue records one after another, with arguments and errors as `append_all`; a refused one stops no other."""
    bulk = BulkDelivery()
    admitting = _Admitting(bulk, enqueue, fail_unseen)
    if isinstance(rows, AsyncIterator):
        position = 0
        async for row in rows:
            await admitting.admit(position, row)
            if admitting.has_ended:
                break  # what the source has not given yet stays there
            position += 1
    else:
        for position, row in enumerate(rows):
            await admitting.admit(position, row)
    admitting.finish()
    return bulk


class _Admitting:
    """Enqueues row after row; after a time-out, or the end of the producer, refuses the rest without an attempt."""

    def __init__(self, bulk: BulkDelivery, enqueue: EnqueueRow, fail_unseen: FailUnseen) -> None:
        self._bulk = bulk
        self._enqueue = enqueue
        self._fail_unseen = fail_unseen
        self._ended: KafkaError | None = None
        self._behind: KafkaError | None = None
        """Error of all rows behind the last attempt."""
        self._not_tried = 0
        self._refused = 0

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    async def admit(self, position: int, row: Row) -> None:
        if self._behind is not None:  # another wait would time out too
            self._bulk._refuse(position, self._behind)
            self._not_tried += 1
            await self.pause()
            return
        try:
            self._bulk._take(position, await self._enqueue(*row))
        except (KafkaError, TypeError, ValueError) as error:
            self.refuse(position, error)
            await self.pause()

    async def pause(self) -> None:
        """Yield to the event loop now and then: refused rows do not wait, and may be endless."""
        self._refused += 1
        if self._refused % REFUSALS_PER_TURN == 0:
            await asyncio.sleep(0)

    def refuse(self, position: int, error: KafkaError | TypeError | ValueError) -> None:
        """Note the error of a row; raises it if no row was accepted, and none will be."""
        if isinstance(error, IllegalStateError) and not self._bulk.accepted:
            raise error
        refused = error_of_refused(error)
        is_slow_serializer = isinstance(error, SerializationError) and isinstance(error.__cause__, TimeoutError)
        if is_slow_serializer or isinstance(refused, _OF_ALL_BEHIND):
            self._ended, self._behind = refused, refused.fresh()
        self._bulk._refuse(position, refused if isinstance(error, KafkaError) else error)
        self._bulk._note_unseen(self._fail_unseen(refused, 1))

    def finish(self) -> None:
        """Note the rows without an attempt as one failure for the next flush."""
        if self._ended is not None and self._not_tried:
            self._bulk._note_unseen(self._fail_unseen(self._ended.fresh(), self._not_tried))


def _failures(members: Iterable[tuple[int, Delivery]]) -> dict[int, KafkaError]:
    failures: dict[int, KafkaError] = {}
    for position, delivery in members:
        error = delivery.exception()
        assert isinstance(error, KafkaError), "its batch has failed"
        failures[position] = error
    return failures


def _count(
    offsets: dict[TopicPartition, OffsetRange], result: BatchResult, *, first: int, last: int, records: int
) -> None:
    """Add records of a batch to the offset ranges, by their positions in the batch."""
    partition = result.topic_partition
    assert partition is not None, "delivered records have a partition"
    first, last = result.base_offset + first, result.base_offset + last
    found = offsets.get(partition, OffsetRange(first, last, 0))
    records += found.records
    if result.base_offset < 0 or found.first < 0:
        offsets[partition] = OffsetRange(-1, -1, records)
    else:
        offsets[partition] = OffsetRange(min(found.first, first), max(found.last, last), records)


class _AllDone:
    """Counts deliveries as they end without reading them: a cancelled wait has seen no failure."""

    __slots__ = ("_left", "reached")
    counts_as_retrieval: Final = False

    def __init__(self, deliveries: int, loop: asyncio.AbstractEventLoop) -> None:
        self._left = deliveries
        self.reached = loop.create_future()

    def __call__(self, _: Delivery) -> None:
        self._left -= 1
        if not self._left and not self.reached.done():
            self.reached.set_result(None)


# The rows

_MISSING: Final = object()
_UNEQUAL: Final = re.compile(r"zip\(\) argument (\d+) is (shorter|longer) than ")


class Columns:
    """The columns of one call, each with one item for each record; arguments as `Producer.send_many`.

    Raises:
        TypeError: a column is not an iterable, or is a mapping, a set or a table.
        ValueError: a part is given both for all records and for each.
    """

    def __init__(  # noqa: PLR0913  # what records have in common, and what each has
        self,
        values: Column,
        *,
        keys: Column | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        timestamps: Column | None = None,
        record_headers: Column | None = None,
    ) -> None:
        others = {"keys": keys, "timestamps": timestamps, "record_headers": record_headers}
        given = {"values": values} | {name: column for name, column in others.items() if column is not None}
        for name, column in given.items():
            _check_column(name, column, may_be_async="values" in given and is_async(values))
        self._common = partition, timestamp, normalize_headers(headers) or None
        for one, common, each in (
            ("timestamp", timestamp, "timestamps"),
            ("headers", self._common[2], "record_headers"),
        ):
            if each in given and common is not None:
                raise ValueError(f"{one} is for all records and {each} for each of them: pass one of them")
        self.is_async: bool = is_async(values)
        self._given: dict[str, Column] = given

    def rows(self) -> Iterator[Row]:
        """Yield the rows, of iterables; a column with more or fewer items than the values is a `ValueError`."""
        partition, timestamp, headers = self._common
        given = [column for column in self._given.values() if isinstance(column, Iterable)]
        if len(given) == 1:
            return zip(given[0], repeat(None), repeat(partition), repeat(timestamp), repeat(headers), strict=False)
        return map(self._row_maker(), self._zipped(given))

    async def async_rows(self) -> AsyncIterator[Row]:
        """Yield the rows, item by item, of columns that may be asynchronous; errors as `rows`."""
        row_of, number = self._row_maker(), 0
        given = self._given.values()
        iterators = [aiter(each if isinstance(each, AsyncIterable) else _as_async(each)) for each in given]
        while True:
            parts = [await anext(iterator, _MISSING) for iterator in iterators]
            if parts[0] is _MISSING and all(part is _MISSING for part in parts):
                return
            for name, part in zip(self._given, parts, strict=True):
                if (part is _MISSING) is not (parts[0] is _MISSING):
                    raise _unequal(name, number, is_shorter=part is _MISSING)
            yield row_of(tuple(parts))
            number += 1

    def _zipped(self, given: list[Iterable[object]]) -> Iterator[tuple[object, ...]]:
        rows, number = zip(*given, strict=True), 0
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except ValueError as error:
                if (found := _UNEQUAL.match(str(error))) is None:
                    raise  # of the user's own iterator
                raise _unequal([*self._given][int(found[1]) - 1], number, is_shorter=found[2] == "shorter") from None
            yield row
            number += 1

    def _row_maker(self) -> Callable[[tuple[object, ...]], Row]:
        """Return a function that makes a row of one item of each column."""
        constants: tuple[object, ...] = (None, *self._common)
        names = [*self._given]
        columns = ("keys", "partitions", "timestamps", "record_headers")
        indexes = [names.index(name) if name in names else len(names) + index for index, name in enumerate(columns)]
        key, partition, timestamp, headers = indexes

        def row_of(parts: tuple[object, ...]) -> Row:
            parts += constants
            return parts[0], parts[key], parts[partition], parts[timestamp], parts[headers]  # type: ignore[return-value]  # as above

        return row_of


def is_async(column: object) -> bool:
    return isinstance(column, AsyncIterable) and not isinstance(column, Iterable)


def _unequal(name: str, number: int, *, is_shorter: bool) -> ValueError:
    which, other = (name, "values") if is_shorter else ("values", name)
    return ValueError(f"{name} must be as many as values: there are {number} {which}, and more {other}")


async def _as_async(column: Iterable[object]) -> AsyncIterator[object]:
    for item in column:
        yield item


def _check_column(name: str, column: object, *, may_be_async: bool) -> None:
    if may_be_async and is_async(column):
        return
    if is_async(column):
        raise TypeError(f"{name} may be an asynchronous iterable if values are one too, got {type(column).__name__}")
    kind = type(column).__name__
    if hasattr(column, "__arrow_c_stream__") and hasattr(column, "columns"):  # of a frame, their names would be sent
        advice = "pass a list of its rows, one of its columns, or the table to send_arrow"
        raise TypeError(f"{name} must be an iterable of {name}, not a {kind}: {advice}")
    if isinstance(column, (str, bytes, bytearray, memoryview)) or not isinstance(column, Iterable):
        raise TypeError(f"{name} must be an iterable of {name}, one for each record, got {kind}")
    if isinstance(column, Mapping):  # its keys alone would be sent
        raise TypeError(f"{name} must be an iterable of {name}, not a {kind}: pass values=d.values(), keys=d.keys()")
    if isinstance(column, (set, frozenset)):  # results are by position, and a set has none
        raise TypeError(f"{name} must be in order, not a {kind}: pass a list")
