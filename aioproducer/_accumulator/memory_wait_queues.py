"""Queues of records that wait for memory: one per partition, and one per topic for records that may go anywhere.

`buffer_pool.py` lends and takes back; the sender calls `serve` after memory was returned.

Source: the `waiters` of BufferPool in Apache Kafka, one queue for all partitions.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

from aioproducer._accumulator.partition import Node, Partition
from aioproducer._accumulator.topic_partitions import Topic
from aioproducer._accumulator.wait_queue import WaitingRecord, WaitQueue
from aioproducer._native.append import RecordAppender
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer._accumulator.open_batches import OpenBatches
    from aioproducer._native.delivery import Delivery


QueueOwner = Partition | Topic  # a partition, or a topic for records that may go to any partition


HELD_UP: Final = "held up"  # rival for all stalled partitions: none is lent a reserve, so one attempt answers for all


Rival = Node | Topic | Literal["held up"] | None
"""Competitor for memory: a leader (None for partitions without one), or a topic whose records may go anywhere."""


PARTITIONS_TRIED: Final = 16  # partitions tried for a record that may go anywhere, each time memory was given back


class BufferWaiters:
    """The queues for memory: one per partition, and one per topic for records that may go to any partition.

    Among the queues the earliest call is tried first. While it gets no memory, it has the first claim on the memory
    that all nodes share, and the others get memory from their own nodes' reserves (`buffer_pool.py`). So neither a
    large record nor one of a slow node is overtaken forever, and a node that does not respond holds back no other.

    Args:
        open_batches: notified while memory is short.
        on_appended: called with a record and its delivery in a batch.
        on_refused: called with a record that can never be appended, and the error.
    """

    def __init__(
        self,
        appender: RecordAppender,
        open_batches: OpenBatches,
        *,
        on_appended: Callable[[WaitingRecord, Delivery], None],
        on_refused: Callable[[WaitingRecord, KafkaError], None],
    ) -> None:
        self._appender = appender
        self._open_batches = open_batches
        self._on_appended = on_appended
        self._on_refused = on_refused
        self._queues: dict[QueueOwner, WaitQueue] = {}
        self._fronts: dict[Rival, list[tuple[int, int, QueueOwner]]] = {}
        self._number = count()

    def owner_of(self, record: WaitingRecord) -> QueueOwner:
        """Return the owner of the queue for a record of a known topic, choosing its partition if necessary."""
        if record.choose_partition is not None:
            record.partition = record.choose_partition()
            record.choose_partition = None
        topic = self._appender.topics[record.topic]
        partition = self._appender.partition_of(record.topic, record.key, record.partition)
        if partition is None:
            return topic
        if partition >= len(topic.partitions):
            self._open_batches.unknown_partition(topic, partition)
        return self._open_batches.partitions.use(topic, partition)

    def join(self, record: WaitingRecord, owner: QueueOwner) -> WaitQueue:
        record.queue_owner = owner
        owner.waiting_count += 1
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = WaitQueue()
            queue.join(record)
            self._show_front(owner, queue)
        else:
            queue.join(record)
        return queue

    def __iter__(self) -> Iterator[WaitingRecord]:
        return (record for queue in list(self._queues.values()) for record in queue)

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def leaderless_topics(self) -> set[str]:
        # These records are not ready, so the sender would not ask for their leaders. Without a leader a partition has
        # no reserve, so they might fail on a healthy cluster until metadata expires.
        return {
            owner.topic_partition.topic for _, _, owner in self._fronts.get(None, ()) if isinstance(owner, Partition)
        }

    # Serving

    def serve(self) -> None:
        """Append as many records as memory allows, earliest call first.

        This runs in every turn while records wait, so it makes one failed attempt per rival, not one per queue.
        """
        self._release_recovered()
        self._open_batches.may_use_common = True
        rivals = [(fronts[0][0], next(self._number), rival) for rival, fronts in self._fronts.items()]
        heapify(rivals)
        while rivals:
            call_order, _, rival = heappop(rivals)
            if rival not in self._fronts or self._fronts[rival][0][0] != call_order:
                continue  # its first record has changed, and competes already
            owner = self._fronts[rival][0][2]
            if (name := _rival_of(owner)) != rival:
                self._rename_front(rival, name)
            elif not self._serve_front(rival):
                self._open_batches.may_use_common = False  # it is kept for the first rival that got none
                continue
            self._let_compete(rival, rivals)
            if owner in self._queues and (name := _rival_of(owner)) != rival:
                self._let_compete(name, rivals)
        self.note_shortage()

    def note_shortage(self) -> None:
        """Report whether records wait: while they do, no batch waits for its linger."""
        self._open_batches.note_shortage(is_short=bool(self._fronts))
        self._open_batches.close_aged()

    def none_waits(self) -> None:
        """Report that no record waits, so batches linger again and all may use the common memory."""
        self._open_batches.note_shortage(is_short=False)
        self._open_batches.may_use_common = True

    def leaders_changed(self) -> None:
        """Compete for the new leaders' memory."""
        self._fronts.clear()
        for owner, queue in list(self._queues.items()):
            self._show_front(owner, queue)

    def _release_recovered(self) -> None:
        """Let partitions that are no longer stalled compete under their leaders again, which have reserves.

        No event reports a recovery, so this checks each time.
        """
        fronts = self._fronts.get(HELD_UP, ())
        recovered = [front for front in fronts if _rival_of(front[2]) != HELD_UP]
        if not recovered:
            return
        self._fronts[HELD_UP] = [front for front in fronts if _rival_of(front[2]) == HELD_UP]
        heapify(self._fronts[HELD_UP])
        self._drop_if_empty(HELD_UP)
        for front in recovered:
            heappush(self._fronts.setdefault(_rival_of(front[2]), []), front)

    def _rename_front(self, rival: Rival, name: Rival) -> None:
        """Move the first queue of a rival to another rival: its partition has stalled, and must not stop its node."""
        heappush(self._fronts.setdefault(name, []), heappop(self._fronts[rival]))
        self._drop_if_empty(rival)

    def _drop_if_empty(self, rival: Rival) -> None:
        if not self._fronts[rival]:
            del self._fronts[rival]

    def _let_compete(self, rival: Rival, rivals: list[tuple[int, int, Rival]]) -> None:
        if rival in self._fronts:
            heappush(rivals, (self._fronts[rival][0][0], next(self._number), rival))

    def _serve_front(self, rival: Rival) -> bool:
        """Append the earliest record of a rival; return False if there is no memory for it."""
        fronts = self._fronts[rival]
        call_order, _, owner = fronts[0]
        queue = self._queues[owner]
        record = queue.first()
        if record is not None and record.call_order == call_order and not self._append(record, owner):
            return False
        heappop(fronts)
        self._drop_if_empty(rival)
        self._show_front(owner, queue)
        return True

    def _show_front(self, owner: QueueOwner, queue: WaitQueue) -> None:
        record = queue.first()
        if record is None:
            del self._queues[owner]
            queue.stop_watching()
            return
        heappush(self._fronts.setdefault(_rival_of(owner), []), (record.call_order, id(owner), owner))

    def _append(self, record: WaitingRecord, owner: QueueOwner) -> bool:
        partitions = (
            [owner]
            if isinstance(owner, Partition)
            else self._open_batches.partitions.candidates(owner, PARTITIONS_TRIED, partial(self._is_free, record))
        )
        for partition in partitions:
            self._open_batches.close_if_apart(partition, record.called_at)
            try:
                delivery = self._appender.append_waiting(
                    record.topic, record.value, record.key, partition.number, record.timestamp, record.headers
                )
            except KafkaError as error:  # the topic was made again with fewer partitions
                self._on_refused(record, error)
                return True
            if delivery is None:
                continue
            if isinstance(owner, Topic):
                self._open_batches.partitions.note_chosen(owner, partition)
            self._on_appended(record, delivery)
            return True
        return False

    def _is_free(self, record: WaitingRecord, partition: Partition) -> bool:
        """Whether no earlier record waits for a partition.

        The queue need not be empty, or a record that may go anywhere would wait while every partition has a queue. It
        would keep the first claim on the common memory, for which those queues wait: a deadlock.
        """
        queue = self._queues.get(partition)
        first = None if queue is None else queue.first()
        return first is None or record.call_order < first.call_order


def _rival_of(owner: QueueOwner) -> Rival:
    if isinstance(owner, Topic):
        return owner
    return HELD_UP if owner.is_stalled and owner.leader is not None else owner.leader
