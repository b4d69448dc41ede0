"""Batch of records of one partition that are sent, answered and ended together.

                 drain                 answer: complete, fail, split
    OPEN ─────────────────► ON_WIRE ─────────────────────────────────► DONE
      │ full, flush           │  ▲                                       ▲
      ▼                       │  │ drain                                 │
    QUEUED ◄──────────────────┘  │           deadline, close             │
      │  ▲    retry, lost        │                                       │
      │  │ sealed                │                                       │
      ▼  │                       │                                       │
    SEALING ─────────────────────┴───────────────────────────────────────┘

The deliveries may end before the batch leaves the wire: at its deadline a batch on the wire fails its deliveries
(`is_abandoned`) and stays ON_WIRE, with its memory and its sequence, until it is answered or its connection is lost.

Source: ProducerBatch in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from aioproducer._accumulator.record_batch_header import (
    HEADER_SIZE,
    NO_IDENTITY,
    NO_TIMES,
    BatchIdentity,
    BatchTimes,
    encode_header,
)
from aioproducer.errors import Outcome

if TYPE_CHECKING:
    from aioproducer._accumulator.partition_queue import PartitionQueue
    from aioproducer._native.append import RecordBatchBuilder
    from aioproducer._native.delivery import BatchResult
    from aioproducer._native.memory import Chunk
    from aioproducer.errors import KafkaError


# Batches are sorted by order number, not by sequence: sequences wrap, and start again with each epoch.
ORDER_STEP: Final = 2**31
"""More than the records of a batch."""


class BatchState(Enum):
    OPEN = "open"
    QUEUED = "queued"
    SEALING = "sealing"
    ON_WIRE = "on_wire"
    DONE = "done"

    __hash__ = object.__hash__  # Enum's own is Python code, and states are looked up for every batch


TRANSITIONS: Final[Mapping[BatchState, frozenset[BatchState]]] = {
    BatchState.OPEN: frozenset({BatchState.QUEUED, BatchState.DONE}),
    BatchState.QUEUED: frozenset({BatchState.SEALING, BatchState.ON_WIRE, BatchState.DONE}),
    BatchState.SEALING: frozenset({BatchState.QUEUED, BatchState.DONE}),
    BatchState.ON_WIRE: frozenset({BatchState.QUEUED, BatchState.DONE}),
    BatchState.DONE: frozenset(),
}


class ProducerBatch:
    """One batch. Its records are in `chunk`, its deliveries in `result`."""

    __slots__ = (
        "_builder",
        "attempts",
        "attempts_before",
        "called_at",
        "chunk",
        "compression",
        "connection",
        "count",
        "generation",
        "identity",
        "is_abandoned",
        "is_part",
        "is_ready",
        "is_sealed",
        "keeps_sequences",
        "last_error",
        "maybe_written",
        "node_id",
        "not_before",
        "order",
        "put_off",
        "queue",
        "result",
        "sent_at",
        "size",
        "start",
        "state",
        "times",
        "uncompressed",
    )

    def __init__(  # noqa: PLR0915  # one line a fact
        self, queue: PartitionQueue, result: BatchResult, chunk: Chunk, *, order: int, called_at: float
    ) -> None:
        """Begin a batch.

        Args:
            queue: of its partition.
            result: of its deliveries.
            chunk: holds its records; given back to the pool when the batch has ended.
            order: position among the partition's batches, also across retries; unlike sequences it does not wrap.
                Spaced by `ORDER_STEP`, so that parts of a split batch fit between.
            called_at: monotonic seconds of the call that brought its oldest record.
        """
        self.queue = queue
        self.result = result
        self.chunk = chunk
        self.order = order
        self.called_at = called_at
        self.generation = 0
        self.state = BatchState.OPEN
        self.count = 0
        self.start = 0
        self.size = 0
        self.uncompressed = 0
        self.times = NO_TIMES
        self.compression = 0
        self.identity: BatchIdentity = NO_IDENTITY
        self.attempts = 0
        self.attempts_before = 0  # of the batch that this is a part of; they do not count towards `retries`
        # CONCURRENT_TRANSACTIONS only means that markers are not written yet; counted as attempts, `retries=2` would
        # abort a transaction in which nothing is wrong.
        self.put_off = 0  # failed attempts that were not the batch's fault; they do not count towards `retries`
        self.maybe_written = False
        self.not_before = 0.0
        self.sent_at = 0.0  # monotonic seconds of the last attempt
        self.connection = 0
        self.node_id: int | None = None
        self.is_ready = False
        self.is_sealed = False
        self.is_part = False  # of a split batch, so it shares its chunk
        self.keeps_sequences = False  # a part with the sequence numbers of the split batch
        self.is_abandoned = False
        self.last_error: KafkaError | None = None
        self._builder: RecordBatchBuilder | None = None

    # Filling

    def write_with(self, builder: RecordBatchBuilder) -> None:
        """Let `builder` write the records while the batch is open."""
        self._builder = builder

    def close(self) -> None:
        """Accept no more records; the batch is queued."""
        builder = self._builder
        assert builder is not None, "a batch is closed once"
        self._builder = None
        self.chunk = builder.chunk
        self.count = builder.count
        self.size = self.uncompressed = builder.size
        self.times = BatchTimes(builder.base_timestamp, builder.max_timestamp)
        self.move_to(BatchState.QUEUED)

    def hold(self, start: int, size: int, *, count: int, times: BatchTimes) -> None:
        """Become part of a split batch, with `size` bytes of records at `start` in the chunk."""
        self.start = start
        self.size = self.uncompressed = size
        self.count = count
        self.times = times
        self.move_to(BatchState.QUEUED)

    def replace_records(self, chunk: Chunk, size: int, compression: int) -> None:
        """Hold the same records in another form; `compression` is Kafka's number of the codec."""
        self.chunk = chunk
        self.start = 0
        self.size = size
        self.compression = compression

    # Sending

    @property
    def is_stamped(self) -> bool:
        return self.identity is not NO_IDENTITY

    @property
    def is_unresolved(self) -> bool:
        """Whether the log may contain it and it has not ended: on the wire, or ambiguous and waiting."""
        if self.state is BatchState.ON_WIRE:
            return True
        return self.maybe_written and self.state is not BatchState.DONE

    @property
    def outcome(self) -> Outcome:
        """Outcome of its records if it ended now."""
        return Outcome.UNKNOWN if self.is_unresolved else Outcome.NOT_WRITTEN

    @property
    def wire_size(self) -> int:
        return HEADER_SIZE + self.size

    @property
    def uncompressed_wire_size(self) -> int:
        return HEADER_SIZE + self.uncompressed

    def records(self) -> memoryview:
        """Return the records section; valid until the chunk is given back."""
        return memoryview(self.chunk)[self.start : self.start + self.size]

    def header(self, records: memoryview) -> bytes:
        """Return the 61-byte header under the current identity; `records` are the batch's own."""
        return encode_header(
            records, self.count, times=self.times, identity=self.identity, compression=self.compression
        )

    def unstamp(self) -> None:
        """Drop an identity under which the batch is known not to be written."""
        assert not self.maybe_written, "an ambiguous batch never changes its identity"
        self.identity = NO_IDENTITY

    def move_to(self, state: BatchState) -> None:
        assert state in TRANSITIONS[self.state], f"{self!r} cannot become {state.value}"
        self.state = state

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.result.topic_partition} order={self.order} {self.state.value} records={self.count} "
            f"attempts={self.attempts} identity={tuple(self.identity[:3])} maybe_written={self.maybe_written}>"
        )
