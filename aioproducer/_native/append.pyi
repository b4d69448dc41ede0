"""Appends one record to its partition's open batch."""

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol, TypeAlias, TypeVar

from aioproducer._accumulator.partition import Partition, Topic
from aioproducer._accumulator.producer_identity import BatchIdentity
from aioproducer._native.delivery import BatchResult, Delivery, OnDelivery
from aioproducer._native.measures import RecordSizes
from aioproducer._native.memory import Chunk
from aioproducer.errors import RecordTooLargeError

_RecordT = TypeVar("_RecordT")
_ResultT = TypeVar("_ResultT")
Headers: TypeAlias = Iterable[tuple[str, bytes | None]]
RecordContent: TypeAlias = tuple[str, object, object, int | None, int | None, Headers | None]
"""(topic, value, key, partition, timestamp in ms, headers) of one record."""

RecordArgs: TypeAlias = tuple[str, object, object, int | None, int | None, Headers | None, OnDelivery | None]
"""All that an append takes: the content of a record, and its `on_delivery`."""

HEADER_SIZE: int  # bytes before the records of a batch

class OpenBatches(Protocol):
    """The part of `OpenBatches` that the appender asks, once per batch."""

    @property
    def topics(self) -> dict[str, Topic]:
        """Topics in use, by name."""
    def make_room(self, partition: Partition, size: int) -> bool:
        """Give a partition an open batch with room for `size` bytes; False if there is no memory."""
    def batch_full(self, partition: Partition) -> None:
        """Close the full batch of a partition."""
    def choose_partition(self, topic: Topic) -> int:
        """Return the partition for the next keyless records."""
    def unknown_partition(self, topic: Topic, partition: int) -> NoReturn:
        """Raise ValueError: the topic has no such partition."""
    def too_large(self, topic: str, size: int) -> RecordTooLargeError:
        """Return the error of a record of up to `size` bytes."""

class RecordBatchBuilder:
    """The part of a `Batch` that native code works with: the append writes its records, the encoder sends them."""

    chunk: Chunk
    result: BatchResult
    size: int  # bytes of records written
    limit: int  # bytes that the records may take; the first record may exceed it
    count: int
    base_timestamp: int  # of the first record, ms since the epoch
    max_timestamp: int  # ms since the epoch
    start: int  # of the records in the chunk; of a part of a split batch not 0
    compression: int  # Kafka's number of the codec; 0 if the records are not compressed
    identity: BatchIdentity  # under which it is sent

    @property
    def wire_size(self) -> int:
        """Bytes in a request, with the header."""
    def __init__(self, chunk: Chunk, result: BatchResult, limit: int, sizes: RecordSizes | None = None) -> None: ...
    def continue_in(self, chunk: Chunk) -> None:
        """Continue in a larger chunk with a copy of the records; the caller frees the old one."""
    def records(self) -> memoryview:
        """The records section; valid until the chunk is given back."""

class OpenPartition:
    """The part of a `Partition` that the append works with: its open batch, and how many records wait."""

    number: int
    open_batch: RecordBatchBuilder | None
    waiting_count: int  # waiting records of this partition: later ones wait behind them

    def __init__(self, number: int) -> None: ...

class TopicInfo:
    """The part of a `Topic` that the append works with: partitions, and the sticky one of keyless records (KIP-794)."""

    topic: str
    partitions: list[Partition | None]  # by number; None if unused

    def __init__(self, topic: str) -> None: ...
    waiting_count: int  # waiting records for any of its partitions: later ones wait behind them
    blocked_count: int
    """Records that wait for metadata to have their partition chosen, and one more while the topic is forgotten.

    Unless it is 0 later records, wherever they go, queue behind them.
    """
    def stick_to(self, partition: int) -> None:
        """The next keyless records go to this partition."""
    def block(self) -> None:
        """Let later records wait; each `block` is undone by one `unblock`."""
    def unblock(self) -> None:
        """Undo one `block`."""
    def append_past_block(self, append: Callable[[_RecordT], _ResultT], record: _RecordT) -> _ResultT:
        """Call `append` with a record, before the records that wait."""
    def leave(self, partition: int) -> None:
        """Choose again for the next keyless records, if they would go to this partition."""

class OwnLoop:
    """Thread and event loop of its creation: one comparison for each record tells whether a call comes from there."""

    def is_on_thread(self) -> bool:
        """Whether the caller runs on that thread."""
    def is_here(self) -> bool:
        """Whether the caller runs on that thread, on that event loop or none."""

class RecordAppender:
    """Appends records to batches: one call per record.

    Args:
        open_batches: owns the topics; asked once per batch.
        refuse: called to raise when the producer takes no records, or on a thread other than the loop's.
        batch_size: bytes of a batch, its 61-byte header included.
        max_record_size: bytes that a batch of one record may have.
        wall_clock: milliseconds since the epoch; None reads the system's clock natively.
        ignore_keys: choose partitions as if no record had a key (`partitioner.ignore.keys`).
        key_hash: of keys: 0 murmur2, 1 CRC-32, 2 FNV-1a.
    """

    topics: dict[str, Topic]
    batch_size: int
    max_record_size: int
    closed: bool  # every append calls `refuse`
    own_loop: OwnLoop  # where appends may be called
    busy: bool  # inside an append: records of nested calls wait
    pause_wanted: bool  # enough was written that a loop of `enqueue` should let the event loop run once

    def __init__(
        self,
        open_batches: OpenBatches,
        *,
        refuse: Callable[[], object],
        batch_size: int,
        max_record_size: int,
        wall_clock: Callable[[], int] | None = None,
        ignore_keys: bool = False,
        key_hash: int = 0,
    ) -> None: ...
    def open(self) -> None:
        """Take records, from the thread alone that made it."""
    def check(self) -> None:
        """Call `refuse` if `closed`, or if the caller is not on its `own_loop`."""
    def wall_clock_ms(self) -> int:
        """Milliseconds since the epoch."""
    def append(self, /, *record: *RecordArgs) -> Delivery | None:
        """Append one record; returns None if it must wait, for metadata, for memory or for others before it.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            RecordTooLargeError: the record alone exceeds `max_record_size`.
        """
    def measure(self, /, *record: *RecordContent) -> tuple[bytes | None, bytes | None, int, int]:
        """Check a record that has to wait: (value, key, timestamp in ms, most bytes it can take)."""
    def append_waiting(self, /, *measured: *RecordContent) -> Delivery | None:
        """Append a record that waited in its partition's queue; returns None if there is still no memory."""
    def partition_of(self, topic: str, key: bytes | None, partition: int | None, /) -> int | None:
        """The partition a record of a known topic has for certain; None when it is chosen late."""

def hash_partition(kind: int, key: bytes, partition_count: int) -> int:
    """The partition by a hash: 0 murmur2, 1 CRC-32, 2 FNV-1a."""
