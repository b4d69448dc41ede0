"""Batches around records that stand there already."""

from collections.abc import Sequence

from aioproducer._accumulator.producer_identity import NO_IDENTITY, BatchIdentity
from aioproducer._native.append import RecordBatchBuilder
from aioproducer._native.delivery import BatchResult
from aioproducer._native.memory import Chunk
from aioproducer.records import TopicPartition
from tests.reference.record_batch import Batch, Record

NOWHERE = TopicPartition("t", 0)


def prepared_batch(  # noqa: PLR0913  # one per field
    records: bytes,
    count: int,
    *,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    identity: BatchIdentity = NO_IDENTITY,
    compression: int = 0,
    start: int = 0,
    topic_partition: TopicPartition = NOWHERE,
) -> RecordBatchBuilder:
    """Make a batch of records that stand at `start` in their chunk."""
    chunk = Chunk(start + max(len(records), 1))
    chunk.fill(bytes(start) + records)
    batch = RecordBatchBuilder(chunk, BatchResult(None, topic_partition), len(records))
    batch.start, batch.size, batch.count = start, len(records), count
    batch.base_timestamp, batch.max_timestamp = base_timestamp, max_timestamp
    batch.identity, batch.compression = identity, compression
    return batch


def reference_batch(records: Sequence[Record], identity: BatchIdentity) -> Batch:
    """Return the reference's batch of these records under an identity."""
    return Batch(
        tuple(records),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.base_sequence,
        transactional=identity.is_transactional,
    )
