"""The core of a producer without an event loop or a network, its parts alone, and a clock that tests set."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from aioproducer._accumulator.batch_splitter import BatchSplitter
from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._accumulator.events import ProducerEvents
from aioproducer._accumulator.flush_generations import FlushGenerations
from aioproducer._accumulator.nodes import Nodes
from aioproducer._accumulator.open_batches import MOST_PER_STEP, AccumulatorDependencies, AccumulatorSettings
from aioproducer._accumulator.partition import (
    Batch,
    BatchOptions,
    BatchState,
    Partition,
    RecordDeadline,
)
from aioproducer._accumulator.partition import Node as Leader
from aioproducer._accumulator.producer_identity import ProducerIdentity
from aioproducer._accumulator.record_accumulator import RecordAccumulator
from aioproducer._accumulator.topic_partitions import TopicPartitions
from aioproducer._accumulator.wait_queues import WaitingLimits, WaitQueues
from aioproducer._accumulator.waiting_record import WaitingRecord
from aioproducer._native.append import RecordAppender
from aioproducer._native.delivery import BatchResult, Delivery
from aioproducer._native.measures import Measures
from aioproducer._native.record_pipeline import RecordPipeline
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer._protocol.compression import CompressionType
from aioproducer._timing.timers import TimerHeap
from aioproducer.cluster import Cluster, Node, Partitions, PartitionView, TopicView
from aioproducer.errors import InvalidPartitionError, KafkaError
from aioproducer.interceptors import InterceptorChain, ProducerInterceptor
from aioproducer.partitioners import Partitioner
from aioproducer.records import TopicPartition
from aioproducer.serializers import SerializerArgument, bind_serializer
from tests.fakes.logs import EventList

if TYPE_CHECKING:
    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._producer.awaited_serializers import UnfinishedRecord
    from aioproducer._timing.wakeup import Wakeup


class EventNotes:  # noqa: PLR0904  # one per event
    """Takes the place of `ProducerEvents`, `NetworkEvents` and `Wakeup`; a test may replace some of its functions."""

    def __init__(self) -> None:
        self.wakes = 0
        self.opened: list[Partition] = []
        self.filled: list[tuple[TopicPartition, int]] = []
        self.many_opened = 0
        self.unknown: list[str] = []
        self.failed: list[KafkaError] = []
        self.lost_logs: list[Partition] = []
        self.abandoned = 0
        self.failed_nodes = 0
        self.tried_again = 0
        self._followers: list[MetadataRefresher] = []
        self.on_timer: Callable[[float], object] = self.nothing
        self.on_filled: Callable[[TopicPartition, int], object] = lambda place, size: self.filled.append((place, size))
        self.on_recreated: Callable[[Partition, bool], object] = self.nothing
        self.on_wanted: Callable[[Partition, BatchResult], object] = self.nothing

    def nothing(self, *_: object) -> None:
        """Take no note."""

    def follow(self, metadata: MetadataRefresher) -> None:
        self._followers.append(metadata)

    def wake(self) -> None:
        self.wakes += 1

    set = wake

    def set_alarm(self, when: float) -> None:
        self.on_timer(when)

    def batch_opened(self, queue: Partition) -> None:
        self.opened.append(queue)

    def batch_wanted(self, partition: Partition, result: BatchResult) -> None:
        self.on_wanted(partition, result)

    def batch_filled(self, topic_partition: TopicPartition, size: int) -> None:
        self.on_filled(topic_partition, size)

    def many_batches_opened(self) -> None:
        self.many_opened += 1

    def unknown_partition(self, topic: str) -> None:
        self.unknown.append(topic)

    def topic_recreated(self, queue: Partition, *, exists: bool) -> None:
        self.on_recreated(queue, exists)

    def records_failed(self, error: KafkaError) -> None:
        self.failed.append(error)

    def abandoned_batch_ended(self) -> None:
        self.abandoned += 1

    def log_lost(self, queue: Partition) -> None:
        self.lost_logs.append(queue)

    def raise_not_accepting(self) -> NoReturn:
        """Fail the test: everything is open."""
        pytest.fail("the appender is closed")

    def node_failed(self) -> None:
        self.failed_nodes += 1
        for metadata in self._followers:
            metadata.node_failed()

    def node_tried_again(self) -> None:
        self.tried_again += 1
        for metadata in self._followers:
            metadata.node_tried_again()


TOPIC_ID = bytes(range(16))


def cluster_of(
    leaders: Sequence[int],
    *,
    topic: str = "t",
    epoch: int = 0,
    topic_id: bytes = TOPIC_ID,
    racks: Mapping[int, str] = MappingProxyType({}),
) -> Cluster:
    """One topic whose partitions are led by these nodes, -1 for none."""
    partitions = Partitions.of(PartitionView(leader, epoch) for leader in leaders)
    nodes = {node_id: Node(node_id, f"host{node_id}", 9092, racks.get(node_id)) for node_id in range(10)}
    view = TopicView(topic, topic_id, partitions, 0)
    return Cluster(nodes=MappingProxyType(nodes), topics=MappingProxyType({topic: view}))


NO_CONNECTIONS = cast("Mapping[int, NodeConnection]", dict.fromkeys(range(10)))
"""Of the nodes of `cluster_of`, for tests in which nothing is sent."""


class CoreParts:
    """Wired as in a producer; `now` is the time, in seconds."""

    def __init__(
        self,
        *,
        leaders: Sequence[int] = (1,),
        memory: int = 1024 * 1024,
        rack: str | None = None,
        racks: Mapping[int, str] = MappingProxyType({}),
        **settings: float,
    ) -> None:
        self.racks = racks
        self.now = 1000.0
        self.events = EventNotes()
        self.on_clock: Callable[[], None] = _nothing
        self.finished_generations = 0
        self.failed: list[tuple[WaitingRecord, KafkaError]] = []
        self.timers = TimerHeap(self.events.set_alarm)
        self.generations = FlushGenerations(self._note_generation)
        self.identity = ProducerIdentity(is_enabled=bool(settings.pop("idempotent", True)))
        if self.identity.is_enabled:
            self.identity.assign(7, 0)
        ignore_keys = bool(settings.pop("ignore_keys", False))
        self.options = BatchOptions(
            linger_s=settings.pop("linger_s", 0.005),
            delivery_timeout_s=settings.pop("delivery_timeout_s", 120.0),
            codec=CompressionType(int(settings.pop("compression", 0))),
        )
        self.settings = _settings(settings)._replace(rack=rack)
        self.pool = BufferPool(memory, self.settings.batch_size, on_return=self.events.nothing)
        self.accumulator = RecordAccumulator(self.settings, self._surroundings())
        self.open_batches = self.accumulator.open_batches
        self.events.on_wanted = self._end_linger
        self.splitter = BatchSplitter(self.pool, self.generations)
        self.appender = RecordAppender(
            self.open_batches,
            refuse=self.events.raise_not_accepting,
            batch_size=self.settings.batch_size,
            max_record_size=self.settings.max_record_size,
            wall_clock=lambda: int(self.now * 1000),
            ignore_keys=ignore_keys,
        )
        self.appender.open()
        self.wait_queues = WaitQueues(
            self.appender,
            self.open_batches,
            self.generations,
            self.timers,
            limits=WaitingLimits(max_records=1000, max_bytes=1_000_000, max_block_s=60.0),
            on_failed=lambda record, error: self.failed.append((record, error)),
            trouble=lambda topic: KafkaError(f"{topic} is unknown"),
        )
        self.connections = NO_CONNECTIONS
        self.lead(leaders)

    def _surroundings(self) -> AccumulatorDependencies:
        return AccumulatorDependencies(
            pool=self.pool,
            timers=self.timers,
            generations=self.generations,
            producer_identity=self.identity,
            random=random.Random(1),
            clock=self._read_clock,
            wakeup=cast("Wakeup", self.events),
            events=cast("ProducerEvents", self.events),
            options=self.options,
            topic_options={},
            loop=None,  # type: ignore[arg-type]  # nothing is awaited here
            measures=Measures(),
        )

    def _end_linger(self, partition: Partition, result: BatchResult) -> None:
        if self.open_batches.end_linger(partition, result) is not None:
            self.accumulator.offer(partition)

    def _read_clock(self) -> float:
        self.on_clock()
        return self.now

    def _note_generation(self) -> None:
        self.finished_generations += 1

    @property
    def wakes(self) -> int:
        return self.events.wakes

    # What tests do

    def lead(self, leaders: Sequence[int], *, epoch: int = 0) -> None:
        self.follow(cluster_of(leaders, epoch=epoch, racks=self.racks))

    def follow(self, cluster: Cluster) -> None:
        for topic in self.accumulator.update_cluster(cluster, ["t"], self.connections):
            self.wait_queues.topic_known(topic)
        self.wait_queues.leaders_changed()

    def send(self, value: bytes | None = b"v", *, partition: int | None = 0, key: bytes | None = None) -> Delivery:
        delivery = self.appender.append("t", value, key, partition, None, None, None)
        return delivery if delivery is not None else self.wait_in_queue(value, partition=partition, key=key).delivery

    def record(
        self, value: bytes | None, *, topic: str = "t", partition: int | None = 0, key: bytes | None = None
    ) -> WaitingRecord:
        _, _, timestamp, size = self.appender.measure(topic, value, key, partition, None, None)
        result = BatchResult(None, None)  # type: ignore[arg-type]  # it is never awaited
        record = WaitingRecord(topic, result, timestamp=timestamp, size=size, called_at=self.now)
        record.value, record.key, record.partition = value, key, partition
        return record

    def wait_in_queue(  # noqa: PLR0913  # all that a record may have
        self,
        value: bytes | None = b"v",
        *,
        topic: str = "t",
        partition: int | None = 0,
        key: bytes | None = None,
        is_counted: bool = True,
        choose_partition: Callable[[], int] | None = None,
        deadline: RecordDeadline | None = None,
    ) -> WaitingRecord:
        record = self.record(value, topic=topic, partition=partition, key=key)
        record.choose_partition, record.deadline = choose_partition, deadline
        self.wait_queues.join(record, is_counted=is_counted)
        return record

    def partition(self, number: int = 0) -> Partition:
        return self.accumulator.partitions.find(TopicPartition("t", number))

    def node(self, node_id: int = 1) -> Leader:
        return self.accumulator.nodes.of(node_id)

    def drain(self, node_id: int = 1, connection: int = 1, *, at_most: int = MOST_PER_STEP) -> list[Batch]:
        return self.accumulator.drain(self.node(node_id), connection, self.now, at_most=at_most)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.timers.fire(self.now)

    def flush(self) -> int:
        generation = self.generations.close()
        self.open_batches.close_all()
        return generation

    def acknowledge(self, batch: Batch, *, base_offset: int = 0) -> None:
        """End a batch on the wire well, as the settlement does."""
        batch.partition.on_wire.remove(batch)
        batch.partition.identity.acknowledge(batch, base_offset, self.now)
        batch.move_to(BatchState.DONE)
        batch.result.complete(base_offset, -1, -1, batch.count)
        self.pool.give_back(batch.chunk)
        self.generations.leave(batch.generation)
        self.accumulator.offer(batch.partition)

    def refuse(
        self, batch: Batch, *, maybe_written: bool = False, pause_s: float = 0.0, is_healthy: bool = False
    ) -> None:
        """Have a batch on the wire tried again, as the settlement does."""
        batch.partition.on_wire.remove(batch)
        batch.partition.identity.require_confirmation()
        batch.maybe_written = batch.maybe_written or maybe_written
        self.accumulator.put_back(batch, not_before=self.now + pause_s, is_healthy=is_healthy)
        self.accumulator.offer(batch.partition)


def _settings(given: dict[str, float]) -> AccumulatorSettings:
    return AccumulatorSettings(
        batch_size=int(given.pop("batch_size", 16 * 1024)),
        max_record_size=int(given.pop("max_record_size", 256 * 1024)),
        max_record_option="max_request_size",
        max_in_flight=int(given.pop("max_in_flight", 5)),
        max_request_size=int(given.pop("max_request_size", 1024 * 1024)),
        is_adaptive=bool(given.pop("is_adaptive", True)),
        availability_timeout_s=given.pop("availability_timeout_s", 0.0),
        is_transactional=bool(given.pop("is_transactional", False)),
    )


def sequences(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    return [(batch.identity.epoch, batch.identity.base_sequence) for batch in batches]


def values(batches: Sequence[Batch]) -> list[int]:
    return [batch.count for batch in batches]


def _nothing() -> None:
    """Nothing happens when the clock is read."""


class PlainPreparation:
    """The rare calls of the pipeline; it knows the topic `t` with two partitions."""

    def __init__(self) -> None:
        self.closed_batches: dict[str, int] = {}
        self.refusals: list[str] = []
        self.cluster: Cluster = cluster_of((1, 1))

    def refused(self, topic: str, _partition: object, _on_delivery: object, error: Exception) -> None:
        self.refusals.append(f"{topic}: {type(error).__name__}")

    def dropped(self, topic: str, _timestamp: object, _on_delivery: object) -> Delivery:
        raise AssertionError(topic)

    def unfinished(self, *arguments: object) -> UnfinishedRecord:
        raise AssertionError(arguments)

    def refuse_pending(self, *parts: object) -> NoReturn:
        raise AssertionError(parts)

    def notify_of_closed_batches(self) -> None:
        pass

    def partitioner_failed(self, topic: str, error: BaseException) -> InvalidPartitionError:
        return InvalidPartitionError(f"{topic}: {error}")

    def checked_choice(self, choice: object, topic: str, _partitions: int) -> int:
        raise AssertionError(choice, topic)


def pipeline_of(
    core: CoreParts,
    *,
    interceptors: Sequence[ProducerInterceptor] = (),
    serializer: SerializerArgument | None = None,
    partitioner: Partitioner | None = None,
    preparation: PlainPreparation | None = None,
) -> RecordPipeline:
    preparation = preparation or PlainPreparation()
    bound = None if serializer is None else bind_serializer("serializer", serializer)
    return RecordPipeline(
        core.appender,
        preparation,
        preparation,
        interceptors=InterceptorChain(interceptors, EventList()),
        key_serializer=bound,
        value_serializer=bound,
        partitioner=partitioner,
    )


CHUNK = b"x" * 900


class Queue:
    """Records that wait for memory on a core, in the order in which they leave."""

    def __init__(self, core: CoreParts) -> None:
        self.core = core
        self._left: list[WaitingRecord] = []

    @property
    def appended(self) -> list[WaitingRecord]:
        refused = [record for record, _ in self.core.failed]
        return [record for record in self._left if record not in refused]

    def join(self, *, partition: int | None = 0, key: bytes | None = None, value: bytes = CHUNK) -> WaitingRecord:
        record = self.core.record(value, partition=partition, key=key)
        record.on_left = partial(self._left.append, record)
        self.core.wait_queues.join(record, is_counted=True)
        return record

    def serve(self) -> None:
        self.core.wait_queues.serve()

    def free(self, chunks: int = 1) -> None:
        """Have the oldest batches of node 1 acknowledged, and serve."""
        for _ in range(chunks):
            self.core.acknowledge(self.core.drain()[0])
        self.serve()


def full(leaders: tuple[int, ...] = (1,), *, chunks: int = 8) -> Queue:
    """Wait queues on a core whose memory is taken by partition 0."""
    core = CoreParts(leaders=leaders, memory=chunks * 1024, batch_size=1024, max_record_size=6 * 1024)
    while core.appender.append("t", CHUNK, None, 0, None, None, None) is not None:
        pass
    return Queue(core)


def leader_id(partition: Partition) -> int | None:
    return None if partition.leader is None else partition.leader.id


class Moves:
    """Notes each new leader of a partition, and sets it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int | None]] = []
        self.renewed: list[tuple[int, bool]] = []

    def move(self, partition: Partition, leader: Leader | None) -> None:
        partition.leader = leader
        self.seen.append((partition.number, leader_id(partition)))

    def note_renewed(self, partition: Partition, *, exists: bool) -> None:
        self.renewed.append((partition.number, exists))


def follow(partitions: TopicPartitions, cluster: Cluster) -> list[str]:
    """Have all topics looked at, as if each might have changed."""
    return partitions.update(cluster, dict.fromkeys([*cluster.topics, *partitions.topics]).keys())


def use_all(partitions: TopicPartitions) -> None:
    for topic in partitions.topics.values():
        for number in range(len(topic.partitions)):
            partitions.use(topic, number)


def in_use(
    *,
    is_adaptive: bool = True,
    identity: ProducerIdentity | None = None,
    nodes: Nodes | None = None,
) -> tuple[TopicPartitions, Moves]:
    moves, events = Moves(), ProducerEvents()
    events.topic_recreated = moves.note_renewed
    partitions = TopicPartitions(
        identity or ProducerIdentity(is_enabled=True),
        max_in_flight=5,
        random=random.Random(1),
        move=moves.move,
        events=events,
        is_adaptive=is_adaptive,
        nodes=nodes or Nodes(TimerHeap(lambda _: None), on_unavailable=lambda _: None),
    )
    return partitions, moves
