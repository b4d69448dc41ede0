"""The parts in the place of the network: metadata without brokers, batches that stay, coordinators that agree."""

from __future__ import annotations

import asyncio
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from aioproducer._accumulator.open_batches import AccumulatorDependencies, AccumulatorSettings, OpenBatches
from aioproducer._accumulator.partition import Batch
from aioproducer._accumulator.record_accumulator import RecordAccumulator
from aioproducer._accumulator.wait_queues import WaitQueues
from aioproducer._native.append import HEADER_SIZE
from aioproducer._native.delivery import BatchResult
from aioproducer._native.memory import Chunk
from aioproducer._network.metadata_refresher import MetadataRefresher
from aioproducer._network.network_client import NetworkClient
from aioproducer._producer.record_hooks import RecordHooks
from aioproducer._protocol.messages import INIT_PRODUCER_ID, ProducerIdResponse
from aioproducer._protocol.partition_views import Partitions, PartitionView
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer._protocol.transaction_messages import (
    FIND_COORDINATOR,
    TXN_OFFSET_COMMIT,
    CoordinatorResponse,
    EndTxnResponse,
    PartitionResult,
    PartitionsResponse,
)
from aioproducer._sender.settlement import Settlement
from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer._transactions.runner import Coordinators
from aioproducer._transactions.states import FIRST_V2
from aioproducer.cluster import Cluster, Node, TopicView
from aioproducer.errors import BrokerConnectionError
from aioproducer.interceptors import InterceptorChain, ProducerInterceptor
from aioproducer.testing._mock_records import Run, SentRecords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer._accumulator.partition import Partition, RecordDeadline
    from aioproducer._accumulator.waiting_record import WaitingRecord
    from aioproducer._logs import EventLog
    from aioproducer._native.append import RecordAppender
    from aioproducer._native.delivery import Delivery
    from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline
    from aioproducer._network.network_client import ResponseT
    from aioproducer._producer.awaited_serializers import UnfinishedRecord
    from aioproducer._protocol.messages import Api
    from aioproducer._sender.completion import Completion
    from aioproducer._transactions.requests import TransactionRequest, TransactionResponse
    from aioproducer.config import ProducerConfig
    from aioproducer.errors import KafkaError
    from aioproducer.records import ProducerRecord

NODE: Final = Node(1, "mock", 9092)
PRODUCER_ID: Final = 1


class MockClient(NetworkClient):
    """Connects to nothing."""

    async def prepare(self) -> None:
        """Load no certificates."""

    async def request(self, api: Api, *_: object, **__: object) -> ResponseT:
        """Give a producer id; there is nothing else to ask."""
        if api is not INIT_PRODUCER_ID:
            raise BrokerConnectionError("a MockProducer has no brokers")
        return cast("ResponseT", ProducerIdResponse(0, 0, PRODUCER_ID, 0))

    @property
    def transaction_version(self) -> int:
        """KIP-890's, whose partitions need not be added."""
        return FIRST_V2


class MockMetadata(MetadataRefresher):
    """Knows every topic: those named at the start, and any other with one partition."""

    def __init__(self, *arguments: NetworkClient, topics: Mapping[str, int], **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # passed through
        self._views = {name: _view(name, partitions) for name, partitions in topics.items()}

    async def run(self) -> None:
        self.refreshes += 1
        self._publish(self._current(asyncio.get_running_loop().time()), self._views)
        self._end_first_responses(None)
        await asyncio.get_running_loop().create_future()

    def add_topic(self, topic: str, now: float) -> float:
        if topic not in self._views:
            self._views[topic] = _view(topic, 1)
            self._publish(self._current(now), (topic,))
        return math.inf  # it never forgets one

    def _current(self, now: float) -> Cluster:
        topics, nodes = MappingProxyType(self._views.copy()), MappingProxyType({NODE.id: NODE})
        return Cluster(nodes, topics, cluster_id="mock", controller_id=NODE.id, updated_at=now)


def _view(name: str, partitions: int) -> TopicView:
    return TopicView(name, NO_TOPIC_ID, Partitions.of([PartitionView(NODE.id, 0)] * partitions))


class MockBatches(OpenBatches):
    """Gives records room in runs; at most one is open, so that runs are in the order of the records."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        dependencies: AccumulatorDependencies,
        *,
        accumulator: RecordAccumulator,
        sent: SentRecords,
        keeps_objects: bool,
    ) -> None:
        places, deadlines = accumulator.partitions, accumulator.deadlines
        super().__init__(settings, dependencies, partitions=places, deadlines=deadlines, offer=accumulator.offer)
        self._sent = sent
        self._dependencies = dependencies
        self._is_transactional = settings.is_transactional
        self._limit = 0 if keeps_objects else max(settings.batch_size - HEADER_SIZE, 0)  # bytes of records in a run
        self._chunk = Chunk(self._limit or 1)  # of the open run: one that is closed has a copy
        sent.use(dependencies.loop, dependencies.generations)

    def make_room(self, partition: Partition, size: int) -> bool:
        if partition.open_batch is not None:
            self.batch_full(partition)
        self._sent.close_open()
        dependencies, topic_partition = self._dependencies, partition.topic_partition
        result = BatchResult(dependencies.loop, topic_partition)
        if self._chunk.capacity < size:
            self._chunk = Chunk(size)
        run = Run(topic_partition, result, dependencies.generations.enter(), self.clock(), given=self._sent.given)
        self._sent.given = None
        if self._is_transactional:
            self._note_in_transaction(partition)
        partition.open_batch = Batch(
            partition,
            result,
            self._chunk,
            options=dependencies.options,
            order=0,
            called_at=run.called_at,
            limit=self._limit,
            sizes=self.measures.record_size,
        )
        self._sent.open(partition, run, is_uncommitted=self._is_transactional)
        return True

    def _note_in_transaction(self, partition: Partition) -> None:
        identity = self._dependencies.producer_identity
        assert isinstance(identity, TransactionalIdentity)
        self._dependencies.events.batch_opened(partition)
        identity.has_stamped = True  # else the coordinator would not be told of the end

    def close(self, partition: Partition) -> None:  # noqa: ARG002  # at most one is open
        self._sent.close_open()

    def close_all(self) -> None:
        """Complete everything, as a flush, a close and a commit do; an abort fails it in the same turn."""
        self._sent.complete_soon()

    close_soon = close_all

    def take_over_waiting_record(self, delivery: Delivery, generation: int, called_at: float) -> None:  # noqa: ARG002  # as above
        self._sent.take_over(delivery._batch_result, generation)

    def set_deadline(self, delivery: Delivery, deadline: RecordDeadline) -> None:
        self._sent.set_deadline(delivery, deadline)

    @property
    def records(self) -> int:
        return self._sent.accepted


class MockAccumulator(RecordAccumulator):
    """Has no batches for the sender."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        dependencies: AccumulatorDependencies,
        *,
        sent: SentRecords,
        keeps_objects: bool,
    ) -> None:
        super().__init__(settings, dependencies)
        self.open_batches = MockBatches(
            settings, dependencies, accumulator=self, sent=sent, keeps_objects=keeps_objects
        )


class MockWaitQueues(WaitQueues):
    """Lets no record wait: a topic is known as soon as it is asked for, and there is always memory."""

    def __init__(self, appender: RecordAppender, *arguments: object, **options: object) -> None:
        super().__init__(appender, *arguments, **options)  # type: ignore[arg-type]  # passed through
        self._own_appender = appender

    def join(self, record: WaitingRecord, *, is_counted: bool, generation: int | None = None) -> None:
        super().join(record, is_counted=is_counted, generation=generation)
        if not self._own_appender.busy:  # else the sender serves it: one append at a time
            self.topic_known(record.topic)
            self.serve()


class MockSettlement(Settlement):
    """Fails the records that no broker will answer."""

    def __init__(self, *, completion: Completion, sent: SentRecords, **options: object) -> None:
        super().__init__(completion=completion, **options)  # type: ignore[arg-type]  # passed through
        self._sent = sent
        sent.end_by(completion)

    def fail_everything(self, error: KafkaError, now: float) -> None:
        self._sent.fail_all(error)
        super().fail_everything(error, now)

    def purge(self, topic: str | None, error: KafkaError) -> int:
        return self._sent.purge(topic, error)


class MockCoordinators(Coordinators):
    """Grants every request, at once."""

    def __init__(self, *arguments: object, sent: SentRecords, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # passed through
        self._sent = sent
        self._epoch = -1

    async def ask(self, request: TransactionRequest) -> None:
        self.manager.sent(request)
        self._take(request, self._answer(request))

    def _answer(self, request: TransactionRequest) -> TransactionResponse:
        if request.api is FIND_COORDINATOR:
            return CoordinatorResponse(0, 0, NODE.id, NODE.host, NODE.port)
        if request.api is TXN_OFFSET_COMMIT:
            asked = request.subject
            assert isinstance(asked, OffsetsToSend)
            self._sent.history.add_offsets(asked.group.group_id, asked.offsets)
            return PartitionsResponse(0, [PartitionResult(*topic_partition, 0) for topic_partition in asked.offsets])
        self._epoch += 1  # KIP-890: every end gives another one
        if request.api is INIT_PRODUCER_ID:
            return ProducerIdResponse(0, 0, PRODUCER_ID, self._epoch)
        self._sent.history.end_transaction(is_commit=request.subject is True)
        return EndTxnResponse(0, 0, PRODUCER_ID, self._epoch)


class GivenRecords(ProducerInterceptor):
    """Notes each record behind the user's interceptors, before it is serialized."""

    def __init__(self, sent: SentRecords) -> None:
        self._sent = sent

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._sent.given = record
        return record


class MockHooks(RecordHooks):
    """Notes the objects that serializers get."""

    def __init__(
        self,
        config: ProducerConfig,
        interceptors: InterceptorChain,
        *,
        sent: SentRecords,
        log: EventLog,
        **options: object,
    ) -> None:
        if has_serializers(config):
            interceptors = InterceptorChain([*interceptors.interceptors, GivenRecords(sent)], log)
        super().__init__(config, interceptors, log=log, **options)  # type: ignore[arg-type]  # passed through
        self._sent = sent

    def unfinished(self, pipeline: RecordPipeline, *arguments: object) -> UnfinishedRecord:
        """Keep the object of a record that waits for its serializer: others are appended before it."""
        given, self._sent.given = self._sent.given, None
        return super().unfinished(cast("RecordPipeline", _Resumed(pipeline, self._sent, given)), *arguments)


class _Resumed:
    """The pipeline of a record that has waited for its serializer."""

    def __init__(self, pipeline: RecordPipeline, sent: SentRecords, given: ProducerRecord | None) -> None:
        self.serializing = pipeline.serializing
        self.appender = pipeline.appender
        self._pipeline = pipeline
        self._sent = sent
        self._given = given

    def append_bytes(self, *arguments: object) -> Delivery | RecordArguments:
        self._sent.given = self._given
        return self._pipeline.append_bytes(*arguments)  # type: ignore[arg-type]  # passed through


def has_serializers(config: ProducerConfig) -> bool:
    """Whether records are objects that serializers turn into bytes."""
    return config.key_serializer is not None or config.value_serializer is not None
