"""Checkers of single invariants: lingers, the order of memory, flushes, frames, reconnects and callbacks."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aioproducer import ProtocolError, RecordMetadata
from aioproducer._accumulator.partition import Batch, Node
from aioproducer._protocol.framing import DEFAULT_MAX_FRAME_BYTES
from aioproducer.testing.fake_broker.faults import Fault
from tests.programs.simulation.history import End, History, Operation
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.simulated_transport import SimulatedTransport

if TYPE_CHECKING:
    from aioproducer._accumulator.buffer_pool import BufferPool
    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._accumulator.partition import Partition
    from aioproducer._accumulator.wait_queues import WaitQueues
    from aioproducer._accumulator.waiting_record import MemoryKey, WaitingRecord
    from aioproducer._native.append import OpenPartition
    from aioproducer._network.connection import BrokerConnection
    from aioproducer._network.connection_pool import ConnectionPool
    from aioproducer._network.node_connection import NodeConnection


TICK_S: Final = 0.001
OVERHEAD: Final = 1_000  # bytes that a record has beside its value, and its batch before it, at most


class LingerChecker:
    """Stands before what opens and closes the batches of a producer."""

    def __init__(self, open_batches: OpenBatches, violated: Callable[[str, str], None], *, longest_value: int) -> None:
        self._open_batches = open_batches
        self._violated = violated
        settings = open_batches._settings  # noqa: SLF001  # invariants are about what is inside
        self._hurried: set[Batch] = set()
        self._opened_for: dict[Partition, Node | None] = {}  # leaders; of open batches
        self._batch_size = settings.batch_size
        self._longest_record = longest_value + OVERHEAD
        steps = (
            "_begin",
            "take_over_waiting_record",
            "batch_full",
            "close_all",
            "close_soon",
            "make_all_ready",
            "close_if_apart",
            "make_room",
        )
        for name in (*steps, "_make_ready_with_others"):
            setattr(open_batches, name, self._around(getattr(open_batches, name), name))
        open_batches._look = self._around_look(open_batches._look)  # type: ignore[method-assign]  # noqa: SLF001  # as above

    def drained(self, batches: Sequence[Batch], now: float) -> None:
        """Look at batches as they are put into a request."""
        for batch in batches:
            is_hurried = batch in self._hurried or batch.result.wanted or batch.is_part or batch.attempts > 1
            self._hurried.discard(batch)
            if not is_hurried and now < batch.called_at + batch.options.ready_age_s - TICK_S:
                text = f"goes after {now - batch.called_at:.6f} s, and its linger is {batch.options.ready_age_s:.3f} s"
                self._violated("LINGER", f"{batch!r} {text}")

    def _around(self, step: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            self._note(name, arguments)
            done = step(*arguments)
            if self._open_batches.memory_is_short:
                self._hurried.update(self._all())
            if name == "_begin":
                self._opened_for[done.partition] = done.partition.leader
            if name == "make_room" and not done:
                self._note_patience(arguments[0])
            return done

        return stepped

    def _around_look(self, look: Callable[[Partition, float], None]) -> Callable[[Partition, float], None]:
        """End a linger; note which batches go along, and check that none is left out."""

        def looked(partition: Partition, now: float) -> None:
            company = self._company(partition, now)
            look(partition, now)
            soon = self._open_batches._to_make_ready  # noqa: SLF001  # as above
            if not all(each.is_ready or each in soon for each in company):
                self._violated("LINGER", f"one of {company} stays, although the linger in {partition!r} was over")

        return looked

    def _company(self, partition: Partition, now: float) -> list[Batch]:
        """The open batches that go with that of a partition, if its linger is over."""
        batch = partition.open_batch
        if batch is None or batch.is_ready or now < batch.called_at + batch.options.ready_age_s:
            return []
        leader = self._opened_for.get(partition)
        age_s = batch.options.ready_age_s  # a topic may have a linger of its own
        return [
            each
            for each in self._all()
            if self._opened_for.get(each.partition) == leader and each.options.ready_age_s == age_s
        ]

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in {"close_all", "close_soon", "make_all_ready", "take_over_waiting_record"}:
            self._hurried.update(self._all())
        elif name == "_make_ready_with_others":  # by any timer: some are older than this checker
            self._hurried.update(self._company(arguments[0], self._open_batches.clock()))
        elif name in {"batch_full", "close_if_apart"}:
            partition: Partition = arguments[0]
            if partition.open_batch is not None:
                self._hurried.add(partition.open_batch)
            if partition.open_batch is not None and name == "batch_full":
                self._check_size(partition)

    def _note_patience(self, partition: Partition) -> None:
        """A record found no room: the open batch goes, so that there is some for the next one soon."""
        if partition.open_batch is not None and partition.open_batch.is_ready:
            self._hurried.add(partition.open_batch)

    def _check_size(self, partition: Partition) -> None:
        """FULL: where there is memory and no other limit, only the next record's size keeps it from `batch_size`."""
        open_batches, pool = self._open_batches, self._open_batches._pool  # noqa: SLF001  # as above
        has_room = pool.lent_bytes + self._batch_size <= pool.total_bytes * 3 // 4 and not open_batches.memory_is_short
        is_limited = bool(open_batches.limits.by_topic)
        size = partition.open_batch.size if partition.open_batch is not None else self._batch_size
        if has_room and not is_limited and size + self._longest_record < self._batch_size:
            self._violated("FULL", f"{partition!r}: closed at {size} of {self._batch_size} bytes: {pool!r}")

    def _all(self) -> list[Batch]:
        return [partition.open_batch for partition in self._open_batches._open if partition.open_batch is not None]  # noqa: SLF001  # as above


# Looks at records that wait for memory: OVERTAKEN, one of them is overtaken by later ones in a way that has no end.
#
# In each queue the earliest call is placed first. Once the earliest call of all queues got no memory, nothing is taken
# from the memory that all nodes share except by it and by records of earlier calls: so it gets its room, of any size,
# when what was lent before has come back. Others may always take what is reserved for their own nodes.

_by_call = attrgetter("call_order")


class OvertakingChecker:
    """Wraps what serves waiters, and what lends memory to batches."""

    def __init__(
        self,
        waiting: WaitQueues,
        open_batches: OpenBatches,
        pool: BufferPool,
        *,
        violated: Callable[[str, str], None],
    ) -> None:
        self._waiting = waiting
        self._pool = pool
        self._violated = violated
        self._claimant: WaitingRecord | None = None
        """The earliest of all waiting calls, once it was tried and got no memory."""
        self._appending: WaitingRecord | None = None
        self._serve, self._append, self._make_room = waiting._serve, waiting._append, open_batches.make_room  # noqa: SLF001  # invariants are about what is inside
        waiting._serve = self.serve  # type: ignore[method-assign]  # noqa: SLF001  # to see which waiters are left
        waiting._append = self.append  # type: ignore[method-assign]  # noqa: SLF001  # to see which record is appended
        open_batches.make_room = self.make_room  # type: ignore[method-assign]  # to see what is lent

    def serve(self) -> None:
        """Serve, and note which waiter has the first claim from now on."""
        self._serve()
        self._claimant = min(self._waiting._memory_records(), key=_by_call, default=None)  # noqa: SLF001  # as above

    def append(self, record: WaitingRecord, key: MemoryKey) -> bool:
        """Append a record, which must be the first of its queue."""
        first = min(self._waiting._for_memory[key], key=_by_call)  # noqa: SLF001  # as above
        if record is not first:
            self._violated("OVERTAKEN", f"call {record.call_order} is appended before {first.call_order} of its queue")
        self._appending = record
        try:
            return self._append(record, key)
        finally:
            self._appending = None

    def make_room(self, partition: OpenPartition, size: int) -> bool:
        """Lend memory to a batch: common memory only to callers before the one with the first claim."""
        claimant, before = self._claimant, self._pool._common.used  # noqa: SLF001  # as above
        is_made = self._make_room(partition, size)
        taken = self._pool._common.used - before  # noqa: SLF001  # as above
        if claimant is None or not claimant.is_waiting or taken <= 0:
            return is_made
        if self._appending is None or self._appending.call_order > claimant.call_order:
            who = "a record that did not wait" if self._appending is None else f"call {self._appending.call_order}"
            text = f"{who} takes {taken} bytes that call {claimant.call_order} with {claimant.size} bytes waits for"
            self._violated("OVERTAKEN", text)
        return is_made


# FLUSH, the other way round: a flush waits for what was accepted before it and for nothing else.


class FlushChecker:
    """Knows when the last record that one flush waits for has ended."""

    def __init__(self, operations: Sequence[Operation], now: Callable[[], float]) -> None:
        self._operations = [operation for operation in operations if not _has_ended(operation)]
        self._is_unknown = any(_is_out_of_sight(operation) for operation in operations)
        self._now = now
        self._last = now()
        watched = [operation.delivery for operation in self._operations if operation.delivery is not None]
        for operation in self._operations:
            operation.is_left = False  # it is retrieved now
        self._missing = len(watched)
        self._others = [operation for operation in self._operations if operation.delivery is None]
        for delivery in watched:
            delivery.add_done_callback(self._note)

    def _note(self, _: asyncio.Future[RecordMetadata]) -> None:
        self._missing -= 1
        self._last = self._now()

    def overtime_s(self) -> float:
        """Seconds that the flush went on without need; 0.0 if that cannot be known."""
        if self._is_unknown or self._missing or any(_is_out_of_sight(operation) for operation in self._operations):
            return 0.0
        if any(operation.end is End.OPEN or operation.verb == "enqueue" for operation in self._others):
            return 0.0  # accepted, and its end was not seen
        if any(_ended_at_its_own_deadline(operation) for operation in self._operations):
            return 0.0  # its batch ends later, if that is on the wire
        return self._now() - max([self._last, *(operation.ended_at for operation in self._others)])


def _has_ended(operation: Operation) -> bool:
    return operation.end is not End.OPEN or (operation.delivery is not None and operation.delivery.done())


def _ended_at_its_own_deadline(operation: Operation) -> bool:
    return (
        operation.deadline_s is not None and operation.ended_at >= operation.called_at + operation.deadline_s - TICK_S
    )


def _is_out_of_sight(operation: Operation) -> bool:
    """Whether the record may be on its way although its caller has turned away."""
    return operation.end is End.GIVEN_UP or (operation.delivery is not None and operation.delivery.cancelled())


# FRAME: what cannot be an answer closes the connection it came on, at once, and no other.
#
# A size below that of a correlation id, or above the largest frame, and an unrequested response are certain:
# when they have been read, the connection is closed. Bytes that were changed on their way, and garbage of which no one
# can tell where it ends, allow any end of their own connection, and none of another.

_SIZE: Final = struct.Struct(">i")
_SMALLEST: Final = 4
_OMITTED: Final = "answered Produce without"


class FrameChecker:
    """Sees what arrives at the producer."""

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self.omissions: list[Fault] = []  # rules by which answers say nothing of a partition
        self._violated = violated
        self._omitted = 0

    def is_bad(self, transport: SimulatedTransport, frame: bytes) -> bool:
        """Whether a frame, of which nothing has arrived yet or all but the last piece, must end its connection."""
        if transport.is_spoilt:
            return False  # where a frame begins is not known any more
        (size,) = _SIZE.unpack_from(frame if len(frame) >= _SIZE.size else frame.ljust(_SIZE.size, b"\0"))
        is_whole = len(frame) == _SIZE.size + size
        if is_whole and size >= _SMALLEST and _SIZE.unpack_from(frame, _SIZE.size)[0] in transport.asked:
            return False
        transport.is_spoilt = True
        is_cut = len(frame) < _SIZE.size or _SMALLEST <= size <= DEFAULT_MAX_FRAME_BYTES
        return is_whole or not is_cut

    def taken(self, transport: SimulatedTransport, *, is_bad: bool) -> None:
        if is_bad and not transport.is_closing():
            self._violated("FRAME", f"connection {transport.number} goes on after what cannot be an answer")

    def lost(self, transport: SimulatedTransport) -> None:
        error = getattr(transport.connection, "error", None)
        if not isinstance(error, ProtocolError) or transport.is_spoilt:
            return
        self._omitted += _OMITTED in str(error)
        hits = sum(fault.hits for fault in self.omissions)
        if _OMITTED not in str(error) or self._omitted > hits:
            self._violated("FRAME", f"connection {transport.number} was closed, but what came on it is sound: {error}")


# Looks at the pauses before a node is connected to again: PAUSE, exponential, bounded, and short again after success.
#
# the n-th failure in a row: reconnect_backoff_ms x 2^(n-1), at most reconnect_backoff_max_ms, spread by a fifth

SPREAD: Final = 0.2
_TICK_S: Final = 1e-6


class ReconnectChecker:
    """Hears of every node that was connected, or failed."""

    def __init__(self, pool: ConnectionPool, violated: Callable[[str, str], None], now: Callable[[], float]) -> None:
        self._pool = pool
        self._violated = violated
        self._now = now
        self._failures: dict[NodeConnection, int] = {}  # ever
        self._in_a_row: dict[NodeConnection, int] = {}
        self._connections: dict[NodeConnection, BrokerConnection | None] = {}
        self._announce = pool._announce  # noqa: SLF001  # invariants are about what is inside
        pool._announce = self.announce  # type: ignore[method-assign]  # noqa: SLF001  # as above
        self._look()

    def announce(self) -> None:
        """Look at the connections, and let waiters for a change continue."""
        self._look()
        self._announce()

    def _look(self) -> None:
        for node_connection in self._pool.nodes.values():
            before = self._connections.get(node_connection)
            if before is not None and node_connection.connection is not before and before.responses > 0:
                self._in_a_row[node_connection] = 0
            failed = node_connection.failures - self._failures.get(node_connection, 0)
            if node_connection not in self._failures:
                self._in_a_row[node_connection] = node_connection._failures_in_a_row  # noqa: SLF001  # as above
            elif failed:
                self._in_a_row[node_connection] += failed
                if failed == 1:
                    self._check_pause(node_connection, self._in_a_row[node_connection])
            self._failures[node_connection] = node_connection.failures
            self._connections[node_connection] = node_connection.connection

    def _check_pause(self, node_connection: NodeConnection, failures: int) -> None:
        settings = node_connection._context.settings  # noqa: SLF001  # as above
        first_ms, most_ms = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        plain_s = min(first_ms << min(failures - 1, 20), most_ms) / 1000
        pause_s = node_connection.retry_at - self._now()
        if not plain_s * (1 - SPREAD) - _TICK_S <= pause_s <= min(plain_s * (1 + SPREAD), most_ms / 1000) + _TICK_S:
            pause = f"{pause_s:.6f} s: failure {failures} in a row, of {first_ms} ms"
            self._violated("PAUSE", f"{node_connection!r} is tried again after {pause}")


# Callbacks of one partition come in the order of its records, where many come at the same time.


class CallbackOrderChecker:
    """Sees the callbacks of records that were acknowledged."""

    def __init__(self, plan: Plan, history: History) -> None:
        # A batch that was appended and refused all the same is sent again behind those that follow it.
        self._is_watching = plan.schedule == "fifo" and plan.acks != 0 and "retriable code" not in plan.enabled
        self._history = history
        self._last: dict[int | None, Operation] = {}

    def called_back(self, operation: Operation) -> None:
        """Look at a record whose callback was called just now."""
        if not self._is_watching:
            return
        before = self._last.get(operation.partition)
        self._last[operation.partition] = operation
        if before is None or before.ended_at != operation.ended_at or before.is_free != operation.is_free:
            return
        if operation.order < before.order:
            self._history.violated(
                "ORDER", f"{operation.record} is called back after {before.record}, which is behind it"
            )
