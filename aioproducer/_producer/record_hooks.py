"""The user's code around records: interceptors, serializers and partitioner.

`_native/record_pipeline.pyx` runs it for each record. Here are the rare paths: one fails, drops a record, is to be
notified, or must be awaited (`awaited_serializers.py`).

Source: KafkaProducer.doSend and ClusterResourceListener in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from aioproducer._native.delivery import BatchResult
from aioproducer._native.record_pipeline import InterceptedOnDelivery, RecordPipeline
from aioproducer._producer.awaited_serializers import UnfinishedRecord
from aioproducer.errors import (
    ConfigurationError,
    InvalidPartitionError,
    KafkaError,
    Outcome,
    RecordFilteredError,
)
from aioproducer.partitioners import check_choice, native_hash
from aioproducer.records import TopicPartition
from aioproducer.serializers import PendingAwaitable, bind_serializer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer._logs import EventLog
    from aioproducer._native.append import RecordAppender
    from aioproducer._native.bound_serializer import BoundSerializer
    from aioproducer._native.delivery import Delivery, OnDelivery
    from aioproducer._native.record_pipeline import RecordArguments
    from aioproducer._network.metadata_refresher import MetadataRefresher
    from aioproducer._producer.bulk import EnqueueRow
    from aioproducer._sender.completion import Completion
    from aioproducer.cluster import Cluster
    from aioproducer.config import ProducerConfig
    from aioproducer.interceptors import InterceptorChain
    from aioproducer.serializers import SerializerArgument


class RecordHooks:  # all that the user's code has to do with a record
    """The user's code around a record.

    Args:
        log: of exceptions of the partitioner outside of `partition`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        interceptors: InterceptorChain,
        *,
        appender: RecordAppender,
        metadata: MetadataRefresher,
        completion: Completion,
        log: EventLog,
    ) -> None:
        self._interceptors = interceptors
        is_native = native_hash(config.partitioner) is not None
        self._partitioner = partitioner = None if is_native else config.partitioner
        self._metadata = metadata
        self._completion = completion
        self._log = log
        self._on_new_batch: Callable[[str, Cluster, int], object] | None = getattr(partitioner, "on_new_batch", None)
        self.closed_batches: dict[str, int] = {}
        """Topic -> partition of its last closed batch that the partitioner is not yet notified of."""
        self.unfinished_records: dict[UnfinishedRecord, None] = {}
        """Records whose calls wait for asynchronous serializers, in the order of the waits."""
        self.pipeline = RecordPipeline(
            appender,
            self,
            metadata,
            interceptors=interceptors,
            key_serializer=_bound("key_serializer", config.key_serializer),
            value_serializer=_bound("value_serializer", config.value_serializer),
            partitioner=partitioner,
        )
        """Runs the user's code on records and appends them."""

    @property
    def interceptor_failures(self) -> int:
        return self._interceptors.failures

    def close(self) -> None:
        self._interceptors.close()
        close = getattr(self._partitioner, "close", None)
        if callable(close):
            self._guard("close", close)

    # Interceptors

    def started(self, client_id: str) -> None:
        self._interceptors.on_start(client_id, lambda: self._metadata.cluster)

    @contextmanager
    def around_many(self, topic: str, enqueue: EnqueueRow) -> Iterator[EnqueueRow]:
        """Enclose the records of one `send_many` or `send_arrow`; enters what is to be called to enqueue a row."""
        if not len(self._interceptors):
            yield enqueue
            return
        with self._interceptors.around_many(topic) as many:
            yield partial(many.enqueue, enqueue) if many.entered else enqueue

    def dropped(self, topic: str, timestamp: int | None, on_delivery: OnDelivery | None) -> Delivery:
        """Return the delivery of a record that an interceptor dropped; it fails, and no flush raises that."""
        result = BatchResult(asyncio.get_running_loop(), None)
        time_of_record = -1 if timestamp is None else timestamp
        if on_delivery is not None:
            result.add_callback(0, time_of_record, on_delivery)
        text = f"an interceptor dropped the record for topic {topic!r}"
        self._completion.filter(result, RecordFilteredError(text, topic=topic, outcome=Outcome.NOT_WRITTEN))
        return result.delivery(0, time_of_record)

    def refused(  # noqa: PLR0917  # called natively
        self, topic: str, partition: int | None, on_delivery: object, error: Exception
    ) -> None:
        """Notify the interceptors of a record that they let pass and that failed at its call."""
        if isinstance(on_delivery, InterceptedOnDelivery):  # else none of them listens
            on_delivery.refused(TopicPartition(topic, -1 if partition is None else partition), error)

    def refused_later(self, record: RecordArguments, error: Exception) -> None:
        """Notify as `refused`, of a record that had to wait, in the context of its call."""
        if record.context is not None:
            record.context.run(self.refused, record.topic, record.partition, record.on_delivery, error)

    # Serializers

    def unfinished(self, pipeline: RecordPipeline, *arguments: object) -> UnfinishedRecord:
        """Return the record of a call that waits for its serializers, or for those of a record before it."""
        return UnfinishedRecord(pipeline, arguments, self.refused, self.unfinished_records)

    def fail_unfinished(self, error: KafkaError, topic: str | None = None) -> int:
        """Fail the records that wait for their serializers, of a topic or of all; return how many."""
        records = [record for record in self.unfinished_records if topic in {None, record.topic}]
        for record in records:
            record.fail(error)
        return len(records)

    def refuse_pending(self, *parts: object) -> NoReturn:
        """Raise a `SerializationError`: a serializer is asynchronous, and the call does not wait."""
        pending = [part for part in parts if isinstance(part, PendingAwaitable)]
        for part in pending:
            part.close()
        raise pending[0].refusal()

    # The partitioner

    def checked_choice(self, choice: object, topic: str, partitions: int) -> int:
        """Return a choice that is an int of another type, such as an enum, as a plain one."""
        try:
            return check_choice(self._partitioner, choice, topic=topic, partition_count=partitions)
        except ValueError as error:
            raise InvalidPartitionError(str(error), topic=topic, outcome=Outcome.NOT_WRITTEN) from error

    def partitioner_failed(self, topic: str, error: BaseException) -> InvalidPartitionError:
        text = f"{type(self._partitioner).__name__}.partition failed: {type(error).__name__}: {error}"
        return InvalidPartitionError(text, topic=topic, outcome=Outcome.NOT_WRITTEN)

    def batch_closed(self, topic_partition: TopicPartition) -> None:
        """Note that the next records of a topic may go to another partition.

        The partitioner is notified before its next choice, not here: this runs inside an append, which a record sent by
        the user's code would corrupt.
        """
        if self._on_new_batch is not None:
            self.closed_batches[topic_partition.topic] = topic_partition.partition

    def notify_of_closed_batches(self) -> None:
        """Call the partitioner's `on_new_batch` for the batches closed since the last call."""
        if self._on_new_batch is None:
            return
        closed = self.closed_batches.copy()
        self.closed_batches.clear()  # before the calls: they may send, and so close other batches
        for topic, partition in closed.items():
            self._guard("on_new_batch", partial(self._on_new_batch, topic, self._metadata.cluster, partition))

    def _guard(self, method: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (Exception, CancelledError) as error:  # noqa: BLE001  # of the user's own code
            name = type(self._partitioner).__name__
            text = f"{type(error).__name__}: {error}"
            self._log.error("partitioner_failed", partitioner=name, method=method, error=text)


def _bound(option: str, serializer: SerializerArgument | None) -> BoundSerializer | None:
    return None if serializer is None else bind_serializer(option, serializer)


class UsedSerializers:
    """Calls `configure`, `on_cluster` and `close` of serializers that have them, each once, in the order of first use.

    Raises:
        ConfigurationError: a `configure` failed.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._used: list[object] = []
        self._configured: set[tuple[int, bool]] = set()
        self._cluster_id: str | None = None
        self._log: EventLog | None = None
        self.use("key_serializer", config.key_serializer, is_key=True)
        self.use("value_serializer", config.value_serializer, is_key=False)

    def use(self, name: str, serializer: object, *, is_key: bool) -> None:
        """Configure a serializer that is used from now on; again only if the same object gets the other part."""
        if serializer is None or (id(serializer), is_key) in self._configured:
            return
        configure = _method(serializer, "configure")
        if configure is not None:
            try:
                configure(self._config, is_key)
            except Exception as error:
                text = f"{name} {type(serializer).__name__}.configure failed: {type(error).__name__}: {error}"
                raise ConfigurationError(text) from error
        self._configured.add((id(serializer), is_key))
        if not any(serializer is other for other in self._used):
            self._used.append(serializer)
            if self._cluster_id is not None:
                self._notify(serializer, self._cluster_id)

    def log_to(self, log: EventLog) -> None:
        self._log = log

    def on_cluster(self, cluster_id: str | None) -> None:
        """Notify the serializers, if the id of the cluster is new."""
        if cluster_id is None or cluster_id == self._cluster_id:
            return
        self._cluster_id = cluster_id
        for serializer in self._used:
            self._notify(serializer, cluster_id)

    def _notify(self, serializer: object, cluster_id: str) -> None:
        on_cluster = _method(serializer, "on_cluster")
        if on_cluster is None:
            return
        try:
            on_cluster(cluster_id)
        except (Exception, CancelledError) as error:  # noqa: BLE001  # of the user's own code
            self._note_failure(serializer, "on_cluster", error)

    async def close(self, timeout_s: float) -> None:
        """Close the serializers, waiting at most `timeout_s` for each; one that fails does not keep the others open."""
        while self._used:
            serializer = self._used.pop(0)
            close = _method(serializer, "close")
            if close is None:
                continue
            try:
                closing = close()
                if inspect.isawaitable(closing):
                    await asyncio.wait_for(closing, timeout_s)
            except Exception as error:  # noqa: BLE001  # of the user's own code
                self._note_failure(serializer, "close", error)

    def _note_failure(self, serializer: object, method: str, error: BaseException) -> None:
        if self._log is not None:
            text = f"{type(error).__name__}: {error}"
            self._log.warning("serializer_failed", serializer=type(serializer).__name__, method=method, error=text)


def _method(serializer: object, name: str) -> Callable[[*tuple[object, ...]], Awaitable[None] | None] | None:
    """Return a method of an object with `serialize`; functions have none."""
    found = getattr(serializer, name, None) if hasattr(serializer, "serialize") else None
    return found if callable(found) else None
