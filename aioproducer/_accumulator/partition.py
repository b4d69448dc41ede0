"""Batches, those of one partition in order, the choice of the next one to send, its node and its topic.

    queued ──► on_wire        `queued` is sorted by the batches' order numbers; the open batch comes after all of them.

A batch that failed returns to its place by that number, so retries never reorder. Only `next_to_send` decides which
batch may go:

* the first, when its backoff is over and the partition's window has room: one on the wire until the connection has
  acknowledged one under the current identity, `max.in.flight` after that, always one without idempotence and while
  parts of a split batch exist;
* none to a new connection while a batch is on the wire on an old one;
* while the partition changes its epoch, only ambiguous batches, under their old identity, in order.

Source: the deque of RecordAccumulator's TopicInfo, and TransactionManager's in-flight batches, in Apache Kafka.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import Enum
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._accumulator.buffer_pool import Account
from aioproducer._accumulator.producer_identity import NO_IDENTITY
from aioproducer._native.append import HEADER_SIZE, OpenPartition, RecordBatchBuilder, TopicInfo
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer.errors import KafkaError, Outcome
from aioproducer.records import TopicPartition

if TYPE_CHECKING:
    from aioproducer._accumulator.producer_identity import PartitionIdentity
    from aioproducer._native.delivery import BatchResult, Delivery
    from aioproducer._native.measures import RecordSizes
    from aioproducer._native.memory import Chunk
    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._protocol.compression import CompressionType
    from aioproducer._timing.timers import Timer
    from aioproducer.cluster import TopicView


# Batches are sorted by order number, not by sequence: sequences wrap, and start again with each epoch.
ORDER_STEP: Final = 2**31  # more than a batch can have records


_LONGEST_CHOICE_S: Final = 0.1
"""Time after which keyless records change partition with less than a batch: awaited ones take minutes to fill one.
Longer than a fast sender needs for a batch, and than most responses take."""


class BatchState(Enum):
    """The stages of a batch's way."""

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


class RecordDeadline(NamedTuple):
    """The deadline of one record, sooner than `delivery.timeout.ms`."""

    seconds: float  # as given
    at: float  # monotonic seconds


class BatchOptions:
    """Options of a batch, the producer's or its topic's; shared by all batches that have the same, never changed."""

    __slots__ = ("closing_age_s", "codec", "delivery_timeout_s", "level", "ready_age_s")

    def __init__(
        self, *, linger_s: float, delivery_timeout_s: float, codec: CompressionType, level: int | None = None
    ) -> None:
        self.delivery_timeout_s = delivery_timeout_s
        self.codec = codec
        self.level = level  # on Kafka's scale of the codec; None if it has none
        # Ages of the batch; computed here, because they are asked for several times per batch.
        self.closing_age_s = delivery_timeout_s / 10
        """It takes no more records then, so that no record's deadline is far from the batch's."""
        self.ready_age_s = min(linger_s, self.closing_age_s)
        """It is ready to be sent then."""


class Batch(RecordBatchBuilder):
    """One batch, from its first record to its end. Its records are in `chunk`, its deliveries in `result`.

    The native append knows it as a `RecordBatchBuilder`, and keeps chunk, size, count and times of the records there,
    as the encoder of the request does what it says about the batch: start, compression and identity.
    """

    __slots__ = (
        "attempts",
        "attempts_before",
        "called_at",
        "connection_number",
        "detached",
        "first_deadline",
        "generation",
        "is_abandoned",
        "is_part",
        "is_ready",
        "is_sealed",
        "keeps_sequences",
        "last_error",
        "maybe_written",
        "node",
        "not_before",
        "options",
        "order",
        "partition",
        "put_off",
        "record_deadlines",
        "sent_at",
        "state",
        "uncompressed_size",
    )

    def __init__(  # noqa: PLR0913, PLR0915, PLR0917  # one line per fact; keywords would cost each batch a dictionary
        self,
        partition: Partition,
        result: BatchResult,
        chunk: Chunk,
        options: BatchOptions,
        order: int,
        called_at: float,
        limit: int = 0,
        sizes: RecordSizes | None = None,
    ) -> None:
        """Begin a batch.

        Args:
            chunk: holds its records; given back to the pool when the batch is over.
            limit: bytes that its records may take; the first may exceed it.
            sizes: counts the records; None for a batch that is not filled by appends.
            order: its place among the partition's batches, also across retries; sequences wrap, this does not.
                Spaced by `ORDER_STEP`, so that parts of a split batch find room between.
            called_at: monotonic seconds of the call that brought its oldest record.
        """
        super().__init__(chunk, result, limit, sizes)
        self.partition = partition
        self.options = options
        self.order = order
        self.called_at = called_at
        self.generation = 0
        self.state = BatchState.OPEN
        self.uncompressed_size = 0  # of its records, if they are compressed
        self.identity = NO_IDENTITY
        self.attempts = 0
        self.attempts_before = 0  # of the batch that this one is a part of; they use up no `retries`, either
        # Attempts that do not count against `retries`, since nothing is wrong with the batch: it was refused because an
        # earlier one was, or before the markers of the last transaction were written (CONCURRENT_TRANSACTIONS).
        self.put_off = 0
        self.maybe_written = False
        self.not_before = 0.0
        self.sent_at = 0.0  # monotonic seconds of the last attempt
        self.connection_number = 0
        self.node: Node | None = None
        self.is_ready = False
        self.is_sealed = False
        self.is_part = False  # of a batch that was taken apart: its chunk is others' too
        self.keeps_sequences = False  # such a part, under the sequence numbers that its records had in the batch
        self.is_abandoned = False
        self.last_error: KafkaError | None = None
        self.record_deadlines: list[tuple[RecordDeadline, Delivery]] = []  # of records with one of their own
        self.first_deadline = inf  # monotonic seconds; of those
        self.detached = _NONE  # records that have failed on their own, and go on in the batch

    # Filling

    def hold(self, start: int, size: int, *, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Take over `size` bytes of records that stand at `start` in the chunk: the part of a split batch."""
        self.start = start
        self.size = size
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.move_to(BatchState.QUEUED)

    def replace_records(self, chunk: Chunk, size: int, compression: int) -> None:
        """Hold the same records in another form: `compression` is Kafka's number of the codec, 0 if unpacked."""
        if compression:
            self.uncompressed_size = self.size
        self.chunk = chunk
        self.start = 0
        self.size = size
        self.compression = compression

    # Deadlines of single records

    def set_deadline(self, delivery: Delivery, deadline: RecordDeadline) -> None:
        """Let a record end earlier than the batch."""
        self.record_deadlines.append((deadline, delivery))
        self.first_deadline = min(self.first_deadline, deadline.at)

    def take_due(self, now: float) -> list[tuple[RecordDeadline, Delivery]]:
        """Take the records whose own deadlines are over."""
        due = [pair for pair in self.record_deadlines if pair[0].at <= now]
        self.record_deadlines = [pair for pair in self.record_deadlines if pair[0].at > now]
        self.first_deadline = min((deadline.at for deadline, _ in self.record_deadlines), default=inf)
        return due

    @property
    def callers(self) -> int:
        """Number of records that have not ended on their own."""
        return self.count - len(self.detached)

    # Sending

    @property
    def is_stamped(self) -> bool:
        return self.identity is not NO_IDENTITY

    @property
    def is_unresolved(self) -> bool:
        """Whether the log may hold it and its end is not known: on the wire, or ambiguous and waiting."""
        if self.state is BatchState.ON_WIRE:
            return True
        return self.maybe_written and self.state is not BatchState.DONE

    @property
    def outcome(self) -> Outcome:
        """The outcome of its records, should it end now."""
        return Outcome.UNKNOWN if self.is_unresolved else Outcome.NOT_WRITTEN

    @property
    def uncompressed_wire_size(self) -> int:
        """The `wire_size` that it would have, or had, without compression."""
        return HEADER_SIZE + (self.uncompressed_size if self.compression else self.size)

    def unstamp(self) -> None:
        """Lose an identity under which it is known not to be written."""
        assert not self.maybe_written, "an ambiguous batch never changes its identity"
        self.identity = NO_IDENTITY

    def move_to(self, state: BatchState) -> None:
        """Change the state; anything the table does not hold is our own bug."""
        assert state in TRANSITIONS[self.state], f"{self!r} cannot become {state.value}"
        self.state = state

    def __repr__(self) -> str:
        return (
            f"<Batch {self.result.topic_partition} order={self.order} {self.state.value} records={self.count} "
            f"attempts={self.attempts} identity={tuple(self.identity[:3])} maybe_written={self.maybe_written}>"
        )


_by_order = attrgetter("order")
_NONE: Final[frozenset[int]] = frozenset()


class Node:
    """A broker: the partitions that are ready for it, its reserve of memory, and the connection to it.

    There is one per broker id for as long as the producer lives: it stays when the broker moves to another address, and
    while metadata lacks the broker.
    """

    __slots__ = ("connection", "id", "ready", "reserve", "wait")

    connection: NodeConnection  # set before the node leads a partition; only the sender uses it

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.ready: OrderedDict[Partition, None] = OrderedDict()  # in the order in which they will be drained
        self.reserve = Account()
        self.wait: Timer | None = None  # of ready partitions that could not be drained; also when it has fired

    def __repr__(self) -> str:
        return f"<Node {self.id} ready={len(self.ready)}>"


class Partition(OpenPartition):  # noqa: PLR0904  # the whole state of a partition
    """One partition that records are sent to: open batch, queued batches, batches on the wire, identity and leader.

    The native append knows it as an `OpenPartition`: its number, its open batch, and how many records wait for it.
    """

    open_batch: Batch | None

    __slots__ = (
        "expiry_timer",
        "identity",
        "is_offered",
        "last_size",
        "leader",
        "max_in_flight",
        "next_order",
        "on_wire",
        "open_timer",
        "parts",
        "queued",
        "topic",
        "topic_partition",
    )

    def __init__(self, topic: Topic, number: int, identity: PartitionIdentity, *, max_in_flight: int) -> None:
        """Start empty and without a leader; `max_in_flight` is 1 without idempotence, else at most 5."""
        super().__init__(number)
        self.topic = topic
        self.topic_partition = TopicPartition(topic.topic, number)
        self.identity = identity
        self.max_in_flight = max_in_flight
        self.leader: Node | None = None
        self.queued: deque[Batch] = deque()
        self.on_wire: list[Batch] = []
        self.parts = 0  # unfinished parts of split batches that keep their sequences
        self.next_order = 0
        self.is_offered = False
        self.open_timer: Timer | None = None
        self.expiry_timer: Timer | None = None
        self.last_size = 0

    # Choosing

    def next_to_send(self, connection_number: int, now: float) -> Batch | None:
        """Return the batch to send now on this connection; None if it waits: the partition is offered again then."""
        batch = self.first_sendable()
        if batch is None or batch.not_before > now:
            return None
        if self.on_wire and (
            len(self.on_wire) >= self.window(connection_number, now)
            or self.on_wire[-1].connection_number != connection_number
        ):
            return None
        return batch

    def first_sendable(self) -> Batch | None:
        """Return the next batch in order, whether or not the wire has room for it."""
        if self.identity.is_changing:
            stamped = next((batch for batch in self.queued if batch.is_stamped), None)
            return stamped if stamped is not None and stamped.state is BatchState.QUEUED else None
        if self.queued:
            head = self.queued[0]
            is_possible = head.state is BatchState.QUEUED and (head.is_stamped or self.identity.can_stamp)
            return head if is_possible else None
        if self.open_batch is not None and self.open_batch.is_ready and self.identity.can_stamp:
            return self.open_batch
        return None

    def window(self, connection_number: int, now: float) -> int:
        """Return how many batches may be on the wire on a connection."""
        if self.parts or not self.identity.is_confirmed(connection_number, now):
            return 1
        return self.max_in_flight

    # Moving batches

    def take_open(self) -> Batch | None:
        batch, self.open_batch = self.open_batch, None
        if batch is None:
            return None
        batch.move_to(BatchState.QUEUED)
        self.queued.append(batch)
        return batch

    def put_on_wire(self, batch: Batch, connection_number: int, now: float) -> None:
        """Move a queued batch to the wire, giving it a sequence if it has none."""
        if self.queued[0] is batch:
            self.queued.popleft()
        else:
            self.queued.remove(batch)
        if batch.identity is NO_IDENTITY:
            batch.identity = self.identity.stamp(batch.count)
        batch.move_to(BatchState.ON_WIRE)
        batch.attempts += 1
        batch.node = self.leader
        batch.connection_number = connection_number
        batch.sent_at = now
        self.on_wire.append(batch)

    def put_back(self, batch: Batch) -> None:
        batch.move_to(BatchState.QUEUED)
        self.insert(batch)

    def insert(self, batch: Batch) -> None:
        if not self.queued or batch.order < self.queued[0].order:
            self.queued.appendleft(batch)
        else:
            insort(self.queued, batch, key=_by_order)

    # Order and identity

    def is_first_unresolved(self, batch: Batch) -> bool:
        earlier = (other for other in (*self.on_wire, *self.queued) if other.order < batch.order)
        return not any(other.is_unresolved or other.is_stamped for other in earlier)

    def restamp_if_resolved(self) -> list[Batch]:
        """Take a pending epoch if no batch is unresolved; return the batches overtaken by an acknowledged one."""
        if not self.identity.may_change:
            return []
        for batch in self.queued:
            if batch.is_stamped and not batch.maybe_written:
                batch.unstamp()
        if self.on_wire or any(batch.is_unresolved for batch in self.queued):
            return []
        overtaken = [batch for batch in self.queued if batch.order < self.identity.last_acked_order]
        for batch in overtaken:
            self.queued.remove(batch)
        self.identity.finish_change()
        return overtaken

    def pending(self) -> list[Batch]:
        """Return the batches whose callers still wait."""
        batches = [batch for batch in (*self.on_wire, *self.queued) if not batch.is_abandoned]
        return batches if self.open_batch is None else [*batches, self.open_batch]

    @property
    def is_stalled(self) -> bool:
        """Whether its first batch has failed an attempt and has not ended."""
        # Such a partition gets nothing from its node's reserve: one partition refused for a minute would take it all.
        if self.on_wire:
            return self.on_wire[0].attempts > 1
        return bool(self.queued) and self.queued[0].attempts > 0

    @property
    def is_moving(self) -> bool:
        """Whether it has closed batches, none of them stalled: they will soon give memory back."""
        return bool(self.on_wire or self.queued) and not self.is_stalled and self.leader is not None

    @property
    def is_empty(self) -> bool:
        return self.open_batch is None and not self.queued and not self.on_wire

    @property
    def backlog(self) -> int:
        """Number of closed batches, which the adaptive choice of a partition compares."""
        return len(self.queued) + len(self.on_wire)

    def __repr__(self) -> str:
        return (
            f"<Partition {self.topic_partition.topic}-{self.number} leader={self.leader!r} "
            f"queued={len(self.queued)} on_wire={len(self.on_wire)} open={self.open_batch is not None}>"
        )


class Topic(TopicInfo):
    """A topic that records were sent to: what metadata says of it, and its partitions in use.

    The native append knows it as a `TopicInfo`: its name, its partitions by number, the one of keyless records, and how
    many records wait.
    """

    __slots__ = (
        "chosen_at",
        "gone",
        "is_adaptive",
        "last_chosen",
        "leader_ids",
        "leading",
        "noted_until",
        "preferred",
        "topic_id",
        "used",
        "view",
    )

    def __init__(self, name: str, *, is_adaptive: bool) -> None:
        """Start without partitions; if `is_adaptive`, keyless records prefer those with fewer batches."""
        super().__init__(name)
        self.is_adaptive = is_adaptive
        self.view: TopicView | None = None  # None while it is forgotten
        self.topic_id = NO_TOPIC_ID  # last known, also while it is forgotten
        self.leader_ids = array("i")  # by number, of all partitions
        self.leading: frozenset[Node] = frozenset()
        self.noted_until = 0.0  # the metadata has noted a use of it, and need not hear of another before this time
        self.preferred: tuple[frozenset[Node], array[int]] | None = None  # nodes, and the partitions that they lead
        self.used: dict[int, Partition] = {}  # by number
        self.gone: dict[int, Partition] = {}  # by number; kept for their identities, in case they come back
        self.last_chosen: Partition | None = None
        self.chosen_at: float | None = None

    @property
    def waits_for_metadata_alone(self) -> bool:
        """Whether later records wait because the topic is forgotten, and for no other reason."""
        return self.view is None and self.blocked_count == 1

    @property
    def in_use(self) -> list[Partition]:
        """The partitions that records were sent to, by number."""
        return [partition for _, partition in sorted(self.used.items())]

    def backlog(self, number: int) -> int:
        partition = self.partitions[number]
        return 0 if partition is None else partition.backlog

    def choose_again(self, partition: Partition) -> None:
        """Let the next keyless records choose, if they would go to this partition."""
        self.leave(partition.number)
        if self.last_chosen is partition:
            self.last_chosen = None

    def follow_to(self, partition: Partition) -> None:
        """Let the next records that may go anywhere follow to this partition."""
        self.last_chosen = partition
        # Also when the partition is not new: otherwise every later keyless record waits for memory on its own.
        self.stick_to(partition.number)
        self.chosen_at = None

    def note_batch(self, partition: Partition, now: float) -> None:
        """Note a closed batch: if the choice is adaptive and not recent, the next batch goes elsewhere.

        If all records are awaited, a slow node has no queue that would show it.
        """
        if self.chosen_at is None:
            self.chosen_at = now
        if self.is_adaptive and now >= self.chosen_at + _LONGEST_CHOICE_S:
            self.choose_again(partition)

    def note_failure(self, partition: Partition) -> None:
        """If the choice is adaptive, let the next keyless records choose again: other queues are shorter.

        Otherwise a batch of them would follow into the failing partition, which is many if each is awaited.
        """
        if self.is_adaptive:
            self.choose_again(partition)
