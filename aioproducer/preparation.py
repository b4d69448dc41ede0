"""What happens to a record before the append, when the producer has code of the user's to run.

    interceptors ──► serializers ──► partitioner

A producer without any of them never comes here. A failing interceptor is skipped; a failing serializer or
partitioner is the error of that call, before anything was accepted.

Source: KafkaProducer.doSend in Apache Kafka.
"""

from __future__ import annotations

from asyncio import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aioproducer.errors import InvalidPartitionError, Outcome
from aioproducer.partitioners import check_choice
from aioproducer.records import (
    ProducerRecord,
    TopicPartition,
    check_callback,
    check_payload,
    check_topic_name,
    normalize_headers,
)
from aioproducer.serializers import bind_serializer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery
    from aioproducer.core.cluster import Cluster
    from aioproducer.errors import KafkaError
    from aioproducer.interceptors import InterceptorChain
    from aioproducer.logs import EventLog
    from aioproducer.partitioners import Partitioner
    from aioproducer.records import RecordMetadata
    from aioproducer.serializers import BoundSerializer, SerializerArgument


class Serializers(NamedTuple):
    """What turns key and value into bytes; None: they are bytes already."""

    key: BoundSerializer | None
    value: BoundSerializer | None


NO_SERIALIZERS: Final = Serializers(None, None)
"""Of a record that is bytes already, whatever the producer has."""


class PreparedRecord(NamedTuple):
    """The arguments of the append, in its order, and a partition that is chosen once the topic is known.

    Before `prepare`, key and value are whatever the caller gave.
    """

    topic: str
    value: object
    key: object
    partition: int | None
    timestamp: int | None
    headers: Headers | None
    on_delivery: OnDelivery | None
    choose_partition: Callable[[], int] | None = None
    serializers: Serializers | None = None
    """In the place of the producer's, for a record whose types were given with its topic."""


class _OnDelivery:
    """What is called for a record that interceptors saw.

    Telling them of a failure does not count as the user having seen it.
    """

    __slots__ = ("_tell", "counts_as_look")

    def __init__(
        self, tell: Callable[[RecordMetadata | None, KafkaError | None], object], *, counts_as_look: bool
    ) -> None:
        self._tell = tell
        self.counts_as_look = counts_as_look

    def __call__(self, metadata: RecordMetadata | None, error: KafkaError | None) -> object:
        """Pass on what became of the record; returns what the user's callback does, a coroutine by mistake."""
        return self._tell(metadata, error)


class Preparation:
    """The user's code around a record.

    Args:
        interceptors: may be empty.
        key_serializer: None takes bytes.
        value_serializer: None takes bytes.
        partitioner: None leaves the choice to the native append.
        cluster: what is known now.
        log: of what the partitioner does wrong besides choosing.
    """

    def __init__(
        self,
        interceptors: InterceptorChain,
        *,
        key_serializer: SerializerArgument | None,
        value_serializer: SerializerArgument | None,
        partitioner: Partitioner | None,
        cluster: Callable[[], Cluster],
        log: EventLog,
    ) -> None:
        self._interceptors = interceptors
        self._serializers = Serializers(
            _bound("key_serializer", key_serializer), _bound("value_serializer", value_serializer)
        )
        self._partitioner = partitioner
        self._cluster = cluster
        self._log = log
        on_new_batch = getattr(partitioner, "on_new_batch", None)
        self._on_new_batch: Callable[[str, Cluster, int], object] | None = on_new_batch
        self._closed_batches: dict[str, int] = {}  # topic -> partition of its last batch that was closed
        self.has_serializers = bool(key_serializer or value_serializer)
        self.is_needed = bool(len(interceptors) or key_serializer or value_serializer or partitioner)
        """Whether there is anything to run."""

    def prepare(self, record: PreparedRecord) -> PreparedRecord | None:
        """Run the user's code on a record whose key and value are still the caller's.

        Returns:
            What to append; None: an interceptor dropped the record.

        Raises:
            SerializationError: a serializer failed.
            InvalidPartitionError: the partitioner failed, or returned what is no partition.
        """
        check_topic_name(record.topic)
        check_callback(record.on_delivery)
        if len(self._interceptors):
            intercepted = self._intercept(record)
            if intercepted is None:
                return None
            record = intercepted
        try:
            return self._serialize(record)
        except Exception as error:
            self.refused(record, error)
            raise

    def _serialize(self, record: PreparedRecord) -> PreparedRecord:
        key, value = record.key, record.value
        serializers = self._serializers if record.serializers is None else record.serializers
        if serializers.key is not None:
            key = serializers.key(record.topic, key)
        if serializers.value is not None:
            value = serializers.value(record.topic, value)
        prepared = record._replace(key=key, value=value)
        if self._partitioner is None or record.partition is not None:
            return prepared
        choose = partial(self._choose, self._partitioner, record, prepared)
        if self._cluster().partition_count(record.topic) is None:
            return prepared._replace(choose_partition=choose)
        return prepared._replace(partition=choose())

    def refused(self, record: PreparedRecord, error: Exception) -> None:
        """Tell the interceptors of a record that they saw and that failed at the call."""
        if len(self._interceptors):
            partition = -1 if record.partition is None else record.partition
            headers = record.headers if isinstance(record.headers, tuple) else ()  # others were never taken
            self._interceptors.on_error(TopicPartition(record.topic, partition), error, headers)

    @property
    def interceptor_failures(self) -> int:
        """How often an interceptor failed."""
        return self._interceptors.failures

    def close(self) -> None:
        """Close interceptors and partitioner."""
        self._interceptors.close()
        close = getattr(self._partitioner, "close", None)
        if callable(close):
            self._guard("close", close)

    def _intercept(self, record: PreparedRecord) -> PreparedRecord | None:
        headers = normalize_headers(record.headers)
        answer = self._interceptors.on_send(
            ProducerRecord(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=headers,
            )
        )
        if answer is None:
            return None
        tell = partial(self._tell, answer, record.on_delivery)
        on_delivery = _OnDelivery(tell, counts_as_look=record.on_delivery is not None)
        return PreparedRecord(
            str.__str__(answer.topic),  # as of a StrEnum that the caller gave: the append knows topics by plain text
            answer.value,
            answer.key,
            answer.partition,
            answer.timestamp,
            answer.headers,
            on_delivery,
            serializers=record.serializers,
        )

    def _tell(  # noqa: PLR0917  # bound before a user's callback sees the rest
        self,
        record: ProducerRecord,
        on_delivery: OnDelivery | None,
        metadata: RecordMetadata | None,
        error: KafkaError | None,
    ) -> object:
        if metadata is not None:
            self._interceptors.on_acknowledgement(metadata, record.headers)
        elif error is not None:
            partition = -1 if error.partition is None else error.partition
            self._interceptors.on_error(TopicPartition(record.topic, partition), error, record.headers)
        return None if on_delivery is None else on_delivery(metadata, error)

    def _choose(self, partitioner: Partitioner, record: PreparedRecord, prepared: PreparedRecord) -> int:
        cluster = self._cluster()
        check_payload("key", prepared.key)
        check_payload("value", prepared.value)
        key_bytes, value_bytes = cast("bytes | None", prepared.key), cast("bytes | None", prepared.value)
        self._tell_of_closed_batches()
        count = cluster.partition_count(record.topic) or 0
        try:
            choice = partitioner.partition(record.topic, record.key, key_bytes, record.value, value_bytes, cluster)
            return check_choice(partitioner, choice, topic=record.topic, partition_count=count)
        except (Exception, CancelledError) as error:
            text = str(error)
            if not isinstance(error, ValueError) or type(partitioner).__name__ not in text:
                text = f"{type(partitioner).__name__}.partition failed: {type(error).__name__}: {error}"
            raise InvalidPartitionError(text, topic=record.topic, outcome=Outcome.NOT_WRITTEN) from error

    def batch_closed(self, topic_partition: TopicPartition) -> None:
        """Note that the next records of a topic may go elsewhere.

        The partitioner learns it before its next choice, not here: this runs inside an append, where code of the
        user's that sends another record would write into the one at hand.
        """
        if self._on_new_batch is not None:
            self._closed_batches[topic_partition.topic] = topic_partition.partition

    def _tell_of_closed_batches(self) -> None:
        if not self._closed_batches or self._on_new_batch is None:
            return
        closed, self._closed_batches = self._closed_batches, {}  # it may send, and so close others
        for topic, partition in closed.items():
            self._guard("on_new_batch", partial(self._on_new_batch, topic, self._cluster(), partition))

    def _guard(self, method: str, call: Callable[[], object]) -> None:
        """Let nothing that the partitioner does besides choosing keep the producer from its work."""
        try:
            call()
        except (Exception, CancelledError) as error:  # noqa: BLE001  # the user's own code, whatever it raises
            name = type(self._partitioner).__name__
            text = f"{type(error).__name__}: {error}"
            self._log.error("partitioner_failed", partitioner=name, method=method, error=text)


def _bound(option: str, serializer: SerializerArgument | None) -> BoundSerializer | None:
    return None if serializer is None else bind_serializer(option, serializer)
