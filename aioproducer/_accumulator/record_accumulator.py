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

from aioproducer._accumulator.nodes import Nodes
from aioproducer._accumulator.open_batches import AccumulatorDependencies, AccumulatorSettings, OpenBatches
from aioproducer._accumulator.partition_queue import BatchState, DeliveryDeadlines, PartitionQueue, ProducerBatch
from aioproducer._accumulator.topic_partitions import TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer._accumulator.partition_queue import Node
    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._timing.wakeup import Wakeup
    from aioproducer.cluster import Cluster


class ReadyNodes:
    """Nodes with ready partitions, and the ready partitions that no node leads.

    A partition enters its leader's queue when its first batch becomes sendable, and leaves it from the front when it is
    drained. Partitions with nothing to send are never looked at, so ten thousand idle ones cost nothing; no partition
    starves, because one that has more goes to the end.

    Source: the `ready` and `drain` scans of RecordAccumulator in Apache Kafka, kept as it changes instead.
    """

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._seen: dict[Node, None] = {}  # every node that ever had a ready partition, in that order
        self.leaderless: dict[str, OrderedDict[PartitionQueue, None]] = {}  # by topic

    def offer(self, queue: PartitionQueue) -> None:
        if queue.first_sendable() is not None:
            self.add(queue)
            self._wakeup.set()

    def move(self, queue: PartitionQueue, leader: Node | None) -> None:
        self.withdraw(queue)
        queue.leader = leader
        queue.identity.require_confirmation()
        for batch in queue.queued:
            batch.not_before = 0.0
        self.offer(queue)

    def add(self, queue: PartitionQueue) -> None:
        """Put a partition at the end of its leader's queue, unless it is there already."""
        if queue.is_offered:
            return
        queue.is_offered = True
        if queue.leader is None:
            self.leaderless.setdefault(queue.topic_partition.topic, OrderedDict())[queue] = None
        else:
            self._seen[queue.leader] = None
            queue.leader.ready[queue] = None

    def offer_first(self, queue: PartitionQueue) -> None:
        """Put a partition back at the front: the request had no room left for its batch."""
        assert queue.leader is not None
        queue.is_offered = True
        queue.leader.ready[queue] = None
        queue.leader.ready.move_to_end(queue, last=False)

    def take_first(self, node: Node) -> PartitionQueue:
        queue, _ = node.ready.popitem(last=False)
        queue.is_offered = False
        return queue

    def withdraw(self, queue: PartitionQueue) -> None:
        if not queue.is_offered:
            return
        queue.is_offered = False
        if queue.leader is None:
            topic = queue.topic_partition.topic
            del self.leaderless[topic][queue]
            if not self.leaderless[topic]:
                del self.leaderless[topic]
        else:
            del queue.leader.ready[queue]

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._seen if node.ready]

    def __repr__(self) -> str:
        counts = {node.id: len(node.ready) for node in self.nodes}
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
        self.ready = ReadyNodes(dependencies.wakeup)
        self.offer = self.ready.offer
        self.nodes = Nodes(
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
            events=dependencies.events,
            is_adaptive=settings.is_adaptive,
            nodes=self.nodes,
        )
        self.open_batches = OpenBatches(
            settings, dependencies, partitions=self.partitions, deadlines=self.deadlines, offer=self.offer
        )

    # Topics and leaders

    def update_cluster(self, cluster: Cluster, connections: Mapping[int, NodeConnection]) -> list[str]:
        """Follow new metadata; return the topics that became usable.

        Args:
            connections: of the nodes that it names, by id.
        """
        self.nodes.update(cluster, connections)
        fresh = self.partitions.update(cluster)
        self._pool.divide_reserves(node.reserve for node in self.partitions.leaders)
        return fresh

    def _move(self, queue: PartitionQueue, leader: Node | None) -> None:
        before = queue.leader
        self.ready.move(queue, leader)
        if before is not None and not before.ready:  # no batch waits for this node any more
            self.nodes.note_drained(before)

    def _node_unavailable(self, node: Node) -> None:
        self.partitions.leave_node(node)

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

    def note_waiting(self, node: Node, now: float) -> None:
        """Note that a node has ready partitions and takes no request now."""
        self.nodes.note_waiting(node, now)

    def drain(self, node: Node, connection: int, now: float, *, at_most: int) -> list[ProducerBatch]:
        """Take the batches of one request to a node: at most one per partition, at least one if any may go.

        Args:
            connection: the one to use, so that order across reconnects holds.
            at_most: partitions that are looked at.
        """
        if node.wait is not None:
            self.nodes.note_drained(node)
        drained: list[ProducerBatch] = []
        size = 0
        again: list[PartitionQueue] = []
        for _ in range(min(len(node.ready), at_most)):
            queue = self.ready.take_first(node)
            # A partition with nothing to send now is not put back, or the sender would spin. The end of its wait offers
            # it again: backoff timer, response, compressor. A new reason to wait must do the same.
            batch = queue.next_to_send(connection, now)
            if batch is None or not self._try_seal(queue, batch):
                continue
            size += batch.wire_size
            if drained and size > self._settings.max_request_size:
                self.ready.offer_first(queue)
                break
            queue.put_on_wire(batch, connection)
            batch.node, batch.sent_at = node, now
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
