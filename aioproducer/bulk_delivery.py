"""Many records in one call: what `send_many` gives back, and how it gets them in.

Each record goes the way of a record sent alone. What differs is the reckoning: one object for all of them, which
says how many were delivered, from which to which offset of each partition, and what became of each of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVarTuple

from aioproducer.errors import (
    BufferTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
    UndeliveredError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer.records import TopicPartition

PartsT = TypeVarTuple("PartsT")


class OffsetRange(NamedTuple):
    """The offsets of one call's records in one partition; records of others may lie between."""

    first: int
    """-1 with `acks=0`, where no broker says it."""

    last: int

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
            errors = [_as_kafka_error(error) for error in self.errors.values()]
            undelivered = UndeliveredError.of(errors, count=len(errors))
            raise undelivered


class BulkDelivery:
    """The records of one `send_many`, accepted and on their way; `await` it for the `BulkResult`.

    Awaiting raises nothing for records that failed: they are in the result. Not awaited, the failures of its records
    are raised by the next `flush` or `close`, as those of any record. Cancelling the wait recalls nothing.
    """

    __slots__ = ("_deliveries", "_refused")

    def __init__(self) -> None:
        self._deliveries: dict[int, Delivery] = {}
        self._refused: dict[int, KafkaError | TypeError | ValueError] = {}

    @property
    def accepted(self) -> int:
        """Records that were taken."""
        return len(self._deliveries)

    @property
    def refused(self) -> Mapping[int, KafkaError | TypeError | ValueError]:
        """Records that were not: position in the call -> what `enqueue` would have raised."""
        return self._refused

    def done(self) -> bool:
        """Whether every record has ended."""
        return all(delivery.done() for delivery in self._deliveries.values())

    def take(self, position: int, delivery: Delivery) -> None:
        """Note that a record was accepted."""
        self._deliveries[position] = delivery

    def refuse(self, position: int, error: KafkaError | TypeError | ValueError) -> None:
        """Note that a record was not accepted."""
        self._refused[position] = error

    def __await__(self) -> Generator[object, None, BulkResult]:
        """Wait until every record has ended."""
        return self._wait().__await__()

    async def _wait(self) -> BulkResult:
        self._end_lingers()
        for delivery in self._deliveries.values():
            if not delivery.done():  # the others of its batch end with it
                await asyncio.wait([delivery])
        return self._result()

    def _end_lingers(self) -> None:
        """Let somebody wait for each batch, once."""
        first_of: dict[BatchResult, Delivery] = {}
        for delivery in self._deliveries.values():
            first_of.setdefault(delivery.home, delivery)
        for delivery in first_of.values():
            if not delivery.done():
                delivery.add_done_callback(_look)

    def _result(self) -> BulkResult:
        """Reckon by batch; only of a batch that failed each record is asked."""
        homes: dict[BatchResult, _Share] = {}
        for delivery in self._deliveries.values():
            home = delivery.home
            share = homes.get(home)
            if share is None:
                homes[home] = _Share(delivery)
            else:
                share.last = delivery
                share.records += 1
        offsets: dict[TopicPartition, OffsetRange] = {}
        for home, share in homes.items():
            if home.error is None:
                _count(offsets, home, share)
        errors = dict(self._refused) | self._failures(homes)
        delivered = sum(found.records for found in offsets.values())
        return BulkResult(delivered, offsets, dict(sorted(errors.items())))

    def _failures(self, homes: Iterable[BatchResult]) -> dict[int, KafkaError | TypeError | ValueError]:
        failures: dict[int, KafkaError | TypeError | ValueError] = {}
        if all(home.error is None for home in homes):
            return failures
        for position, delivery in self._deliveries.items():
            error = delivery.exception()
            if error is not None:
                assert isinstance(error, KafkaError)
                failures[position] = error
        return failures

    def __repr__(self) -> str:
        """Show how many are on their way."""
        state = "done" if self.done() else "pending"
        return f"<BulkDelivery accepted={self.accepted} refused={len(self._refused)} {state}>"


async def give_all(
    records: Iterable[tuple[*PartsT]], enqueue: Callable[[*PartsT], Awaitable[Delivery]]
) -> BulkDelivery:
    """Enqueue records one after another; one that cannot be taken does not keep the others back.

    Args:
        records: the arguments for each.
        enqueue: takes one record.

    Raises:
        IllegalStateError: the producer takes nothing any more, and had taken nothing of these.
    """
    bulk = BulkDelivery()
    waited_out: KafkaError | None = None
    for position, record in enumerate(records):
        if waited_out is not None:  # the next would wait as long, and as much in vain
            bulk.refuse(position, waited_out.fresh())
            continue
        try:
            bulk.take(position, await enqueue(*record))
        except IllegalStateError as error:
            if not bulk.accepted:
                raise
            waited_out = error
            bulk.refuse(position, error)
        except (MetadataTimeoutError, BufferTimeoutError) as error:
            waited_out = error
            bulk.refuse(position, error)
        except (KafkaError, TypeError, ValueError) as error:
            bulk.refuse(position, error)
    return bulk


class _Share:
    """The records of one call in one batch, where they are in the order of the call."""

    __slots__ = ("first", "last", "records")

    def __init__(self, first: Delivery) -> None:
        self.first = self.last = first
        self.records = 1


def _count(offsets: dict[TopicPartition, OffsetRange], home: BatchResult, share: _Share) -> None:
    place = home.topic_partition
    assert place is not None, "a record that was delivered is somewhere"
    first = last = -1
    if home.base_offset >= 0:
        first, last = home.base_offset + share.first.position, home.base_offset + share.last.position
    found = offsets.get(place)
    if found is None:
        offsets[place] = OffsetRange(first, last, share.records)
    else:
        offsets[place] = OffsetRange(min(found.first, first), max(found.last, last), found.records + share.records)


def _as_kafka_error(error: KafkaError | TypeError | ValueError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    wrapped = KafkaError(f"{type(error).__name__}: {error}", outcome=Outcome.NOT_WRITTEN)
    wrapped.__cause__ = error
    return wrapped


def _look(_done: object) -> None:
    """Stands for somebody who waits."""
