"""The user's code around a record, and the append behind it."""

import contextvars
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias

from aioproducer._native.append import Headers, RecordAppender, RecordArgs
from aioproducer._native.bound_serializer import BoundSerializer
from aioproducer._native.delivery import Delivery, OnDelivery
from aioproducer._producer.awaited_serializers import UnfinishedRecord
from aioproducer.cluster import Cluster
from aioproducer.errors import KafkaError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.partitioners import Partitioner
from aioproducer.records import ProducerRecord, TopicPartition

SerializedArgs: TypeAlias = tuple[
    str, object, object, int | None, int | None, Headers | None, OnDelivery | None, object, object
]
"""The arguments of an append as the user gave them, and what the serializers made of key and value."""

class RecordArguments:
    """The arguments of an append that has to wait, after the user's code has run."""

    topic: str
    value: object  # bytes; or, where no serializer ran, what the append checks
    key: object
    partition: int | None
    timestamp: int | None
    headers: Headers | None
    on_delivery: OnDelivery | None
    context: contextvars.Context | None  # of the call; None where no code of the user's runs later
    choose_partition: Callable[[], int] | None
    """Asks the partitioner, once the topic is known; None if the record has its partition, or needs none."""

    def __init__(
        self,
        *record: *RecordArgs,
        context: contextvars.Context | None = None,
        choose_partition: Callable[[], int] | None = None,
    ) -> None:
        """Keep the arguments, and the current context if there is an `on_delivery`.

        Raises:
            TypeError, ValueError: no topic can have that name.
        """
    def append_to(self, appender: RecordAppender) -> Delivery | None:
        """Append the record, in the context of its call; returns None if it has to wait."""
    def choose(self) -> None:
        """Have the partitioner choose, if it has not; the topic must be known.

        Raises:
            InvalidPartitionError: the partitioner failed, or returned what is not a partition.
        """

class InterceptorLoop:
    """Passes records through interceptors."""

    interceptors: tuple[ProducerInterceptor, ...]
    listens: bool  # whether one of them wants to know what becomes of records

    def __init__(self, interceptors: Sequence[ProducerInterceptor], *, listens: bool) -> None: ...
    def on_send(self, record: ProducerRecord, /) -> ProducerRecord | None:
        """Pass the record through the chain.

        Returns:
            The record to send, or None if an interceptor dropped it. A failing interceptor counts as if it had
            returned the record it was given.
        """
    def __len__(self) -> int: ...

class InterceptedOnDelivery:
    """The `on_delivery` of a record whose interceptors listen."""

    def refused(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Notify them of a record that failed at its call."""

class PipelineCallbacks(Protocol):
    """Rare steps that the pipeline leaves to Python; `_producer/record_hooks.py` implements them."""

    closed_batches: dict[str, int]
    """Topic -> partition of its last batch that was closed, until the partitioner is notified."""

    def refused(self, topic: str, partition: int | None, on_delivery: object, error: Exception, /) -> None:
        """Notify the interceptors of a record that failed at its call."""
    def dropped(self, topic: str, timestamp: int | None, on_delivery: OnDelivery | None, /) -> Delivery:
        """Return the delivery of a record that an interceptor dropped."""
    def unfinished(self, pipeline: RecordPipeline, /, *serialized: *SerializedArgs) -> UnfinishedRecord:
        """Return the record of a call that waits for its serializers, or for those of a record before it."""
    def refuse_pending(self, key_bytes: object, value_bytes: object, /) -> NoReturn:
        """Refuse a record whose serializer is asynchronous: its call does not wait."""
    def notify_of_closed_batches(self) -> None:
        """Tell the partitioner of the batches closed since the last call."""
    def partitioner_failed(self, topic: str, error: BaseException, /) -> KafkaError:
        """Return the error to raise for what the partitioner raised."""
    def checked_choice(self, choice: object, topic: str, partitions: int, /) -> int:
        """Return a choice that is an int of another type; raises for one that is not a partition."""

class Metadata(Protocol):
    """The source of the partitioner's cluster."""

    @property
    def cluster(self) -> Cluster:
        """The brokers and topics known now."""

class RecordPipeline:
    """Runs the user's code on a record and appends it.

    Args:
        appender: gets the bytes.
        preparation: the rare steps.
        metadata: has the current cluster.
        interceptors: may be empty.
        key_serializer: None takes bytes.
        value_serializer: None takes bytes.
        partitioner: None leaves the choice to the appender.
    """

    appender: RecordAppender
    serializing: dict[str, object]  # by topic, what the next record must wait for
    has_hooks: bool  # whether there are interceptors, serializers or a partitioner
    key_serializer: BoundSerializer | None
    value_serializer: BoundSerializer | None

    def __init__(
        self,
        appender: RecordAppender,
        preparation: PipelineCallbacks,
        metadata: Metadata,
        *,
        interceptors: InterceptorLoop,
        key_serializer: BoundSerializer | None,
        value_serializer: BoundSerializer | None,
        partitioner: Partitioner | None,
    ) -> None: ...
    def take(self, /, *record: *RecordArgs) -> Delivery | RecordArguments:
        """Run the hooks, each once, and append the record.

        Returns:
            The delivery; or, if the record has to wait, what to append later. A record that an interceptor dropped
            has a delivery that has failed.

        Raises:
            TypeError, ValueError: an argument.
            SerializationError: a serializer failed.
            InvalidPartitionError: the partitioner failed, or returned what is not a partition.
        """
    def append_or_wait(self, /, *record: *RecordArgs) -> Delivery | RecordArguments | UnfinishedRecord:
        """As `take`, for a call that can wait for a serializer's awaitable; `take` refuses such a record."""
    def append_bytes(self, /, *serialized: *SerializedArgs) -> Delivery | RecordArguments:
        """Go on behind the serializers: ask the partitioner, and append.

        Raises:
            TypeError, ValueError: an argument.
            InvalidPartitionError: the partitioner failed, or returned what is not a partition.
        """
    def take_bytes(self, /, *record: *RecordArgs) -> Delivery | RecordArguments | UnfinishedRecord:
        """As `append_or_wait`, without the serializers: key and value are bytes."""
    def choose(
        self, topic: str, key: object, key_bytes: bytes | None, value: object, value_bytes: bytes | None, /
    ) -> int:
        """Ask the partitioner; the topic is known.

        Raises:
            InvalidPartitionError: it failed, or returned what is not a partition.
        """
