"""Records that wait to be sent: which batches are ready, and which go with a request.

The native `RecordAppender` writes records into open batches (`open_batches.py`). The sender asks what is ready and
drains it. A partition becomes ready at the moment one of these happens, and is then offered to its leader's queue
(`ReadyNodes`), but for a lone batch that is sent as someone awaits it (`OpenBatches.take_lone`):

    batch full · linger over · someone awaits · memory short · flush or close · backoff over · leader known again
    · the wire has room again

Source: RecordAccumulator in Apache Kafka, without its locks and its scans.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from aioproducer._accumulator.delivery_deadlines import DeliveryDeadlines
from aioproducer._accumulator.nodes import Nodes
from aioproducer._accumulator.open_batches import AccumulatorDependencies, AccumulatorSettings, OpenBatches
from aioproducer._accumulator.partition import Batch, BatchState, Partition
from aioproducer._accumulator.topic_partitions import TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioproducer._accumulator.partition import Node
    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._timing.wakeup import Wakeup
    from aioproducer.cluster import Cluster


_ready = attrgetter("ready")


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
        self.leaderless: dict[str, OrderedDict[Partition, None]] = {}  # by topic

    def offer(self, partition: Partition) -> None:
        if partition.first_sendable() is not None:
            self.add(partition)
            self._wakeup.set()

    def move(self, partition: Partition, leader: Node | None) -> None:
        self.withdraw(partition)
        partition.leader = leader
        partition.identity.require_confirmation()
        for batch in partition.queued:
            batch.not_before = 0.0
        self.offer(partition)

    def add(self, partition: Partition) -> None:
        """Put a partition at the end of its leader's queue, unless it is there already."""
        if partition.is_offered:
            return
        partition.is_offered = True
        if partition.leader is None:
            self.leaderless.setdefault(partition.topic_partition.topic, OrderedDict())[partition] = None
        else:
            self._seen[partition.leader] = None
            partition.leader.ready[partition] = None

    def offer_first(self, partition: Partition) -> None:
        """Put a partition back at the front: the request had no room left for its batch."""
        assert partition.leader is not None
        partition.is_offered = True
        partition.leader.ready[partition] = None
        partition.leader.ready.move_to_end(partition, last=False)

    def take_first(self, node: Node) -> Partition:
        partition, _ = node.ready.popitem(last=False)
        partition.is_offered = False
        return partition

    def withdraw(self, partition: Partition) -> None:
        if not partition.is_offered:
            return
        partition.is_offered = False
        if partition.leader is None:
            topic = partition.topic_partition.topic
            del self.leaderless[topic][partition]
            if not self.leaderless[topic]:
                del self.leaderless[topic]
        else:
            del partition.leader.ready[partition]

    @property
    def nodes(self) -> list[Node]:
        return list(filter(_ready, self._seen))

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
        self.unsealed: list[Batch] = []  # to compress; `take_unsealed` takes them
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

    def update_cluster(
        self, cluster: Cluster, changed: Collection[str], connections: Mapping[int, NodeConnection]
    ) -> list[str]:
        """Follow new metadata, in which these topics have changed; return those that became usable.

        Args:
            connections: of the nodes that metadata names, by id.
        """
        self.nodes.update(cluster, connections)
        fresh = self.partitions.update(cluster, changed)
        self._pool.divide_reserves(node.reserve for node in self.partitions.leaders)
        return fresh

    def _move(self, partition: Partition, leader: Node | None) -> None:
        before = partition.leader
        self.ready.move(partition, leader)
        if before is not None and not before.ready:  # no batch waits for this node any more
            self.nodes.note_drained(before)

    def _node_unavailable(self, node: Node) -> None:
        self.partitions.leave_node(node)

    # Becoming ready

    def offer_all(self) -> None:
        """Offer every partition, after what held all back, such as a missing producer id."""
        for partition in self.partitions.in_use():
            self.offer(partition)

    def withdraw_idle(self) -> None:
        """Withdraw partitions without a leader that have nothing to send, until no topic begins with one.

        They are never drained, so metadata would be asked for their leaders again and again. One partition is enough to
        ask for a topic, so the others are skipped: every turn does this, and there may be thousands.
        """
        for partitions in list(self.ready.leaderless.values()):
            while (partition := next(iter(partitions), None)) is not None and partition.first_sendable() is None:
                self.ready.withdraw(partition)

    @property
    def leaderless_topics(self) -> set[str]:
        return set(self.ready.leaderless)

    # Draining

    def drain(self, node: Node, connection_number: int, now: float, *, at_most: int) -> list[Batch]:
        """Take the batches of one request to a node: at most one per partition, at least one if any may go.

        Args:
            connection_number: of the one to use, so that order across reconnects holds.
            at_most: partitions that are looked at.
        """
        if node.wait is not None:
            self.nodes.note_drained(node)
        drained: list[Batch] = []
        size = 0
        again: list[Partition] = []
        for _ in range(min(len(node.ready), at_most)):
            partition = self.ready.take_first(node)
            # A partition with nothing to send now is not put back, or the sender would spin. The end of its wait offers
            # it again: backoff timer, response, compressor. A new reason to wait must do the same.
            batch = partition.next_to_send(connection_number, now)
            if batch is None or not self._try_seal(partition, batch):
                continue
            size += batch.wire_size
            if drained and size > self._settings.max_request_size:
                self.ready.offer_first(partition)
                break
            partition.put_on_wire(batch, connection_number, now)
            drained.append(batch)
            again.append(partition)
        for partition in again:
            if partition.first_sendable() is not None:
                self.ready.add(partition)
        return drained

    def _try_seal(self, partition: Partition, batch: Batch) -> bool:
        """Close a batch; return False if it has to be compressed first."""
        if batch.state is BatchState.OPEN:
            partition.take_open()
            self.open_batches.note_closed(partition, batch)
        if batch.is_sealed or not batch.options.codec:
            return True
        batch.move_to(BatchState.SEALING)
        self.unsealed.append(batch)
        return False

    def take_unsealed(self) -> list[Batch]:
        """Take the batches to compress; each comes back by `sealed`."""
        unsealed, self.unsealed = self.unsealed, []
        return unsealed

    def sealed(self, batch: Batch, data: bytes | None) -> None:
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
        self.offer(batch.partition)

    # Retries

    def put_back(self, batch: Batch, *, not_before: float, is_healthy: bool = False) -> None:
        """Queue a batch from the wire for another attempt; `is_healthy` lets keyless records continue to go there."""
        batch.not_before = not_before
        batch.partition.put_back(batch)
        if not is_healthy:  # waiting for markers must not add a partition to the transaction each time
            batch.partition.topic.note_failure(batch.partition)
        self._timers.schedule(not_before, partial(self._backoff_over, batch.partition))

    def _backoff_over(self, partition: Partition, now: float) -> None:  # noqa: ARG002  # a timer's callback
        self.offer(partition)

    # Ends

    def close_overdue(self, partition: Partition, now: float) -> None:
        """Close the open batch of a partition if it, or one of its records, is overdue."""
        batch = partition.open_batch
        if batch is not None and (batch.first_deadline <= now or self.deadlines.is_over(batch, now)):
            self.open_batches.close(partition)

    def unfinished(self) -> list[tuple[Partition, list[Batch]]]:
        """Close all open batches; return all batches that have not ended, by partition."""
        self.open_batches.close_all()
        return [(partition, [*partition.on_wire, *partition.queued]) for partition in self.partitions.in_use()]

    def __repr__(self) -> str:
        return f"<RecordAccumulator {self.partitions!r} {self.open_batches!r} {self.ready!r}>"
