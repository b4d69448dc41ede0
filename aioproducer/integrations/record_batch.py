"""Records of one assignment that are processed in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from aiokafka import ConsumerRecord

    from aioproducer.integrations.consumer_membership import Membership
    from aioproducer.transaction import Transaction


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """What one transaction is made of; never empty."""

    records: Sequence[ConsumerRecord]
    """In the order of each partition."""

    membership: Membership
    """Under which all of them were read."""

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What is committed with the transaction: in each partition the offset to read next."""
        last = {(record.topic, record.partition): record.offset for record in self.records}
        return {TopicPartition(*place): OffsetAndMetadata(offset + 1) for place, offset in last.items()}


class OpenBatch(NamedTuple):
    """A batch that somebody works on, and its transaction."""

    batch: RecordBatch
    transaction: AbstractAsyncContextManager[Transaction]
    txn: Transaction
    began_at: float
    """Monotonic seconds."""
