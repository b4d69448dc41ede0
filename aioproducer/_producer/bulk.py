"""Many records in one call: what `send_many` gives back, and how it gets them in.

Each record goes the way of a record sent alone, many of them in one native call (`_native/append_many.pyx`). What
differs is the reckoning: one object for all of them, which says how many were delivered, from which to which offset of
each partition, and what became of each of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._sender.completion import error_of_refused
from aioproducer.errors import (
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    UndeliveredError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeAlias

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import BulkAppend, Row, Share
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer.records import TopicPartition

    EnqueueRow: TypeAlias = Callable[[object, object, int | None, int | None, Headers | None], Awaitable[Delivery]]
    FailUnseen: TypeAlias = Callable[[KafkaError, int], BatchResult]

REFUSALS_A_TURN: Final = 256


class OffsetRange(NamedTuple):
    """The offsets of one call's records in one partition; records of others may lie between."""

    first: int
    """-1 where a broker has not said it of some of them: with `acks=0`, or when it has known a batch for too long."""

    last: int
    """-1 where `first` is."""

    records: int
    """Of this call, in the partition."""


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of the records of one `send_many`."""

    delivered: int
    """Records that were acknowledged."""

    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    """Where they are."""

    errors: Mapping[int, KafkaError | TypeError | ValueError] = field(default_factory=dict)
    """Those that were not: position in the call (from 0) -> why, in that order."""

    @property
    def failed(self) -> int:
        """Records that were not acknowledged."""
        return len(self.errors)

    def raise_for_errors(self) -> None:
        """Do nothing if all were delivered.

        Raises:
            UndeliveredError: some were not; it has at most 100 of the errors, and the count.
        """
        if self.errors:
            errors = [error_of_refused(error) for error in self.errors.values()]
            undelivered = UndeliveredError.of(errors, count=len(errors))
            raise undelivered


class BulkDelivery:
    """The records of one `send_many`, accepted and on their way; `await` it for the `BulkResult`.

    Awaiting raises nothing for records that failed: they are in the result. Not awaited, the failures of its records
    are raised by the next `flush` or `close`, as those of any record; so are the refusals, unless `refused` was looked
    at. Cancelling the wait recalls nothing.
    """

    __slots__ = ("_deliveries", "_followed", "_refused", "_shares", "_unseen")

    def __init__(self, shares: list[Share] | None = None) -> None:
        """Begin with nothing taken; `shares` is filled as records are appended."""
        self._shares = [] if shares is None else shares
        self._deliveries: dict[int, Delivery] = {}
        self._followed: dict[Share, Delivery] = {}  # one of each share, however often it is waited for
        self._refused: dict[int, KafkaError | TypeError | ValueError] = {}
        self._unseen: list[BatchResult] = []  # of the refused ones, until somebody looks

    @property
    def accepted(self) -> int:
        """Records that were taken."""
        return len(self._deliveries) + sum(map(len, self._shares))

    @property
    def refused(self) -> Mapping[int, KafkaError | TypeError | ValueError]:
        """Records that were not: position in the call -> what `enqueue` would have raised."""
        self._look_at_refused()
        return self._refused

    def done(self) -> bool:
        """Whether every record has ended."""
        return all(delivery.done() for delivery in self._ends())

    def take(self, position: int, delivery: Delivery) -> None:
        """Note that a record was accepted."""
        self._deliveries[position] = delivery

    def refuse(self, position: int, error: KafkaError | TypeError | ValueError) -> None:
        """Note that a record was not accepted."""
        self._refused[position] = error

    def note_unseen(self, result: BatchResult) -> None:
        """Note what the next `flush` raises of refused records, unless somebody looks at them here."""
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
                await all_done.reached  # in any order; a batch may be split meanwhile
            finally:
                for delivery in pending:
                    delivery.remove_done_callback(all_done)
        return self._result()

    def _ends(self) -> Iterator[Delivery]:
        """One delivery of each batch."""
        self._follow_moved()
        for share in self._shares:
            if share not in self._followed:
                self._followed[share] = share.delivery()
        yield from [*self._followed.values()]
        last_of = {delivery.batch_result: delivery for delivery in self._deliveries.values()}
        yield from last_of.values()

    def _follow_moved(self) -> None:
        """A batch that was split is no longer one: its records are followed one by one."""
        if any(share.batch_result.moved for share in self._shares):
            for share in self._shares:
                if share.batch_result.moved:
                    self._followed.pop(share, None)
                    self._deliveries.update(share.deliveries())
            self._shares = [share for share in self._shares if not share.batch_result.moved]

    def _result(self) -> BulkResult:
        """Reckon by batch; only of a batch that failed each record is asked."""
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
                first, last = members[0][1].position, members[-1][1].position
                _count(offsets, result, first=first, last=last, records=len(members))
            else:
                errors |= _failures(members)
        delivered = sum(found.records for found in offsets.values())
        return BulkResult(delivered, offsets, dict(sorted(errors.items())))

    def _members(self) -> dict[BatchResult, list[tuple[int, Delivery]]]:
        members: dict[BatchResult, list[tuple[int, Delivery]]] = {}
        for position, delivery in sorted(self._deliveries.items()):
            members.setdefault(delivery.batch_result, []).append((position, delivery))
        return members

    def __repr__(self) -> str:
        """Show how many are on their way."""
        state = "done" if self.done() else "pending"
        return f"<BulkDelivery accepted={self.accepted} refused={len(self._refused)} {state}>"


async def append_all(
    many: BulkAppend, enqueue: EnqueueRow, *, is_open: Callable[[], bool], fail_unseen: FailUnseen
) -> BulkDelivery:
    """As `enqueue_all`, by native calls: each takes all rows that need not wait.

    Args:
        many: the rows, for a producer that runs no code of the user's.
        enqueue: takes one row that must wait.
        is_open: says whether rows may still go in; the transaction that they belong to may be over.
        fail_unseen: keeps so many refusals for the next flush.

    Raises:
        IllegalStateError: the producer takes nothing any more, and had taken nothing of these.
        KafkaError: the rows themselves raised it; an error of one row is in the result.
        TypeError: the rows themselves raised it.
        ValueError: the rows themselves raised it.
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


async def enqueue_all(rows: Iterable[Row], enqueue: EnqueueRow, *, fail_unseen: FailUnseen) -> BulkDelivery:
    """Enqueue records one after another; one that cannot be taken does not keep the others back.

    Args:
        rows: the arguments for each.
        enqueue: takes one row.
        fail_unseen: as `append_all`.

    Raises:
        IllegalStateError: the producer takes nothing any more, and had taken nothing of these.
    """
    bulk = BulkDelivery()
    admitting = _Admitting(bulk, enqueue, fail_unseen)
    for position, row in enumerate(rows):
        await admitting.admit(position, row)
    admitting.finish()
    return bulk


class _Admitting:
    """Takes row after row; once one has waited in vain, or the producer ended, those behind it are not tried."""

    def __init__(self, bulk: BulkDelivery, enqueue: EnqueueRow, fail_unseen: FailUnseen) -> None:
        self._bulk = bulk
        self._enqueue = enqueue
        self._fail_unseen = fail_unseen
        self._ended: KafkaError | None = None
        self._behind: KafkaError | None = None
        """Of all rows behind the one with which it ended."""
        self._not_tried = 0
        self._refused = 0

    @property
    def has_ended(self) -> bool:
        """Whether no further row is tried."""
        return self._ended is not None

    async def admit(self, position: int, row: Row) -> None:
        """Enqueue a row, or note why not."""
        if self._behind is not None:  # the next would wait as long, and as much in vain
            self._bulk.refuse(position, self._behind)
            self._not_tried += 1
            await self.pause()
            return
        try:
            self._bulk.take(position, await self._enqueue(*row))
        except (KafkaError, TypeError, ValueError) as error:
            self.refuse(position, error)
            await self.pause()

    async def pause(self) -> None:
        """Let others run now and then: rows that are refused wait for nothing, and may be many, or without end."""
        self._refused += 1
        if self._refused % REFUSALS_A_TURN == 0:
            await asyncio.sleep(0)

    def refuse(self, position: int, error: KafkaError | TypeError | ValueError) -> None:
        """Note why a row was not taken.

        Raises:
            IllegalStateError: no row was taken, and none will be.
        """
        if isinstance(error, IllegalStateError) and not self._bulk.accepted:
            raise error
        refused = error_of_refused(error)
        if isinstance(refused, (IllegalStateError, MetadataTimeoutError, BufferTimeoutError)):
            self._ended, self._behind = refused, refused.fresh()
        self._bulk.refuse(position, refused if isinstance(error, KafkaError) else error)
        self._bulk.note_unseen(self._fail_unseen(refused, 1))

    def finish(self) -> None:
        """Tell of those that were not tried, as one."""
        if self._ended is not None and self._not_tried:
            self._bulk.note_unseen(self._fail_unseen(self._ended.fresh(), self._not_tried))


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
    """Add records of a batch, given by their positions in it."""
    place = result.topic_partition
    assert place is not None, "a record that was delivered is somewhere"
    first, last = result.base_offset + first, result.base_offset + last
    found = offsets.get(place, OffsetRange(first, last, 0))
    records += found.records
    if result.base_offset < 0 or found.first < 0:
        offsets[place] = OffsetRange(-1, -1, records)
    else:
        offsets[place] = OffsetRange(min(found.first, first), max(found.last, last), records)


class _AllDone:
    """Counts deliveries as they end, and looks at none: who gives up the wait has seen no failure."""

    __slots__ = ("_left", "reached")
    counts_as_look: Final = False

    def __init__(self, deliveries: int, loop: asyncio.AbstractEventLoop) -> None:
        self._left = deliveries
        self.reached = loop.create_future()

    def __call__(self, _: Delivery) -> None:
        """Count one."""
        self._left -= 1
        if not self._left and not self.reached.done():
            self.reached.set_result(None)
