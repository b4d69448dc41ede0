"""Records that wait to be sent: which batches are ready, and which go with a request.

The native `RecordAppender` writes records into open batches (`open_batches.py`). The sender asks what is ready and
drains it. A partition becomes ready at the moment one of these happens, and is then offered to its leader's queue
(`ReadyNodes`):

    batch full · linger over · someone awaits · memory short · flush or close · backoff over · leader known again
    · the wire has room again

Source: RecordAccumulator in Apache Kafka, without its locks and its scans.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from aioproducer._accumulator.open_batches import AccumulatorDependencies, AccumulatorSettings, OpenBatches
from aioproducer._accumulator.partition_queue import BatchState, DeliveryDeadlines, PartitionQueue, ProducerBatch
from aioproducer._accumulator.topic_partitions import PreferredNodes, TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.cluster import Cluster


class ReadyNodes:
    """Queues of ready partitions by node id, and the ready partitions that no node leads.

    A partition enters its leader's queue when its first batch becomes sendable, and leaves it from the front when it is
    drained. Partitions with nothing to send are never looked at, so ten thousand idle ones cost nothing; no partition
    starves, because one that has more goes to the end.

    Source: the `ready` and `drain` scans of RecordAccumulator in Apache Kafka, kept as it changes instead.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._by_node: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self.leaderless: dict[str, OrderedDict[PartitionQueue, None]] = {}  # by topic

    def offer(self, queue: PartitionQueue) -> None:
        if queue.first_sendable() is not None:
            self.add(queue)
            self._wake()

    def move(self, queue: PartitionQueue, leader_id: int | None) -> None:
        self.withdraw(queue)
        queue.leader_id = leader_id
        queue.identity.require_confirmation()
        for batch in queue.queued:
            batch.not_before = 0.0
        self.offer(queue)

    def add(self, queue: PartitionQueue) -> None:
        """Put a partition at the end of its leader's queue, unless it is there already."""
        if queue.is_offered:
            return
        queue.is_offered = True
        if queue.leader_id is None:
            self.leaderless.setdefault(queue.topic_partition.topic, OrderedDict())[queue] = None
        else:
            self._of(queue.leader_id)[queue] = None

    def offer_first(self, queue: PartitionQueue) -> None:
        """Put a partition back at the front: the request had no room left for its batch."""
        assert queue.leader_id is not None
        queue.is_offered = True
        ready = self._of(queue.leader_id)
        ready[queue] = None
        ready.move_to_end(queue, last=False)

    def take_first(self, node_id: int) -> PartitionQueue | None:
        ready = self._by_node.get(node_id)
        if not ready:
            return None
        queue, _ = ready.popitem(last=False)
        queue.is_offered = False
        return queue

    def withdraw(self, queue: PartitionQueue) -> None:
        if not queue.is_offered:
            return
        queue.is_offered = False
        if queue.leader_id is None:
            topic = queue.topic_partition.topic
            del self.leaderless[topic][queue]
            if not self.leaderless[topic]:
                del self.leaderless[topic]
        else:
            del self._by_node[queue.leader_id][queue]

    def _of(self, node_id: int) -> OrderedDict[PartitionQueue, None]:
        ready = self._by_node.get(node_id)
        if ready is None:
            ready = self._by_node[node_id] = OrderedDict()
        return ready

    @property
    def node_ids(self) -> list[int]:
        return [node_id for node_id, ready in self._by_node.items() if ready]

    def count(self, node_id: int) -> int:
        ready = self._by_node.get(node_id)
        return len(ready) if ready else 0

    def __repr__(self) -> str:
        counts = {node_id: len(ready) for node_id, ready in self._by_node.items() if ready}
        return f"<ReadyNodes {counts} leaderless={sum(map(len, self.leaderless.values()))}>"


class RecordAccumulator:
    """Open and queued batches of all partitions in use."""

    def __init__(self, settings: AccumulatorSettings, dependencies: AccumulatorDependencies) -> None:
        self._settings = settings
        self._pool = dependencies.pool
        self._timers = dependencies.timers
        self.measures = dependencies.measures
        self.deadlines = DeliveryDeadlines(dependencies.timers)
        self.unsealed: list[ProducerBatch] = []  # to compress; `take_unsealed` takes them
        self.ready = ReadyNodes(dependencies.events.wake)
        self.offer = self.ready.offer
        self._preferred = PreferredNodes(
            dependencies.timers,
            on_unavailable=self._node_unavailable,
            availability_timeout_s=settings.availability_timeout_s,
            rack=settings.rack,
        )
        self.partitions = TopicPartitions(
            dependencies.producer_identity,
            max_in_flight=settings.max_in_flight,
            random=dependencies.random,
            move=self._move,
            on_recreated=dependencies.events.topic_recreated,
            is_adaptive=settings.is_adaptive,
            preferred=self._preferred,
        )
        self.open_batches = OpenBatches(
            settings, dependencies, partitions=self.partitions, deadlines=self.deadlines, offer=self.offer
        )

    # Topics and leaders

    def update_cluster(self, cluster: Cluster) -> list[str]:
        """Follow new metadata; return the topics that became usable."""
        fresh = self.partitions.update(cluster)
        self._pool.set_nodes(self.partitions.leaders)
        return fresh

    def _move(self, queue: PartitionQueue, leader_id: int | None) -> None:
        before = queue.leader_id
        self.ready.move(queue, leader_id)
        if before is not None and not self.ready.count(before):  # no batch waits for this node any more
            self._preferred.note_drained(before)

    def _node_unavailable(self, node_id: int) -> None:
        self.partitions.leave_node(node_id)

    # Becoming ready

    def offer_all(self) -> None:
        """Offer every partition, after what held all back, such as a missing producer id."""
        for queue in self.partitions.queues():
            self.offer(queue)

    def withdraw_idle(self) -> None:
        """Withdraw partitions without a leader that have nothing to send, until no topic begins with one.

        They are never drained, so metadata would be asked for their leaders again and again. One partition is enough to
        ask for a topic, so the others are skipped: every turn does this, and there may be thousands.
        """
        for queues in list(self.ready.leaderless.values()):
            while (queue := next(iter(queues), None)) is not None and queue.first_sendable() is None:
                self.ready.withdraw(queue)

    @property
    def leaderless_topics(self) -> set[str]:
        return set(self.ready.leaderless)

    # Draining

    def note_waiting(self, node_id: int, now: float) -> None:
        """Note that a node has ready partitions and takes no request now."""
        self._preferred.note_waiting(node_id, now)

    def drain(self, node_id: int, connection: int, now: float) -> list[ProducerBatch]:
        """Take the batches of one request to a node: at most one per partition, at least one if any may go.

        Args:
            connection: the one to use, so that order across reconnects holds.
        """
        if self._preferred.waits:
            self._preferred.note_drained(node_id)
        drained: list[ProducerBatch] = []
        size = 0
        again: list[PartitionQueue] = []
        for _ in range(self.ready.count(node_id)):
            queue = self.ready.take_first(node_id)
            # A partition with nothing to send now is not put back, or the sender would spin. The end of its wait offers
            # it again: backoff timer, response, compressor. A new reason to wait must do the same.
            batch = queue.next_to_send(connection, now) if queue is not None else None
            if queue is None or batch is None or not self._try_seal(queue, batch):
                continue
            size += batch.wire_size
            if drained and size > self._settings.max_request_size:
                self.ready.offer_first(queue)
                break
            queue.put_on_wire(batch, connection)
            batch.node_id, batch.sent_at = node_id, now
            drained.append(batch)
            again.append(queue)
        for queue in again:
            if queue.first_sendable() is not None:
                self.ready.add(queue)
        return drained

    def _try_seal(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Close a batch; return False if it has to be compressed first."""
        if batch.state is BatchState.OPEN:
            queue.take_open()
            self.open_batches.note_closed(queue, batch)
        if batch.is_sealed or not batch.options.codec:
            return True
        batch.move_to(BatchState.SEALING)
        self.unsealed.append(batch)
        return False

    def take_unsealed(self) -> list[ProducerBatch]:
        """Take the batches to compress; each comes back by `sealed`."""
        unsealed, self.unsealed = self.unsealed, []
        return unsealed

    def sealed(self, batch: ProducerBatch, data: bytes | None) -> None:
        """Queue a compressed batch; `data` is None if compression did not make it smaller."""
        batch.is_sealed = True
        if batch.state is BatchState.DONE:
            self._pool.give_back(batch.chunk)
            return
        chunk = self._pool.replace(batch.chunk, data) if data is not None else None
        if data is not None and chunk is not None:
            batch.replace_records(chunk, len(data), batch.options.codec)
        batch.move_to(BatchState.QUEUED)
        if batch.record_deadlines:
            self.deadlines.watch(batch)
        self.offer(batch.queue)

    # Retries

    def put_back(self, batch: ProducerBatch, *, not_before: float, is_healthy: bool = False) -> None:
        """Queue a batch from the wire for another attempt; `is_healthy` lets keyless records continue to go there."""
        batch.not_before = not_before
        batch.queue.put_back(batch)
        if not is_healthy:  # waiting for markers must not add a partition to the transaction each time
            self.partitions.note_failure(batch.queue)
        self._timers.schedule(not_before, partial(self._backoff_over, batch.queue))

    def _backoff_over(self, queue: PartitionQueue, now: float) -> None:  # noqa: ARG002  # a timer's callback
        self.offer(queue)

    # Ends

    def batch_acknowledged(self, batch: ProducerBatch) -> None:
        limits = self.open_batches.limits
        if limits.by_topic:
            limits.acknowledged(batch.queue.topic_partition.topic)

    def batch_too_large(self, batch: ProducerBatch) -> None:
        topic, _ = batch.queue.topic_partition
        self.open_batches.limits.refused(topic, batch.uncompressed_wire_size)

    def close_overdue(self, queue: PartitionQueue, now: float) -> None:
        """Close the open batch of a partition if it, or one of its records, is overdue."""
        batch = queue.open_batch
        if batch is not None and (batch.first_deadline <= now or self.deadlines.is_over(batch, now)):
            self.open_batches.close(queue)

    def unfinished(self) -> list[tuple[PartitionQueue, list[ProducerBatch]]]:
        """Close all open batches; return all batches that have not ended, by partition."""
        self.open_batches.close_all()
        return [(queue, [*queue.on_wire, *queue.queued]) for queue in self.partitions.queues()]

    def __repr__(self) -> str:
        return f"<RecordAccumulator {self.partitions!r} {self.open_batches!r} {self.ready!r}>"
