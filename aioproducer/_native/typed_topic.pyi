"""Send methods of a typed topic: check types, serialize, and pass on to the producer's pipeline."""

from collections.abc import Coroutine
from typing import Generic, TypeAlias

from aioproducer._native.append import Headers
from aioproducer._native.delivery import Delivery, OnDelivery
from aioproducer._native.enqueue import EnqueueMethod
from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline
from aioproducer._producer.awaited_serializers import UnfinishedRecord
from aioproducer._producer.topic import KeyT, TopicRecords, ValueT

TypedArgs: TypeAlias = tuple[object, object, int | None, int | None, Headers | None, OnDelivery | None]
"""(value, key, partition, timestamp in ms, headers, on_delivery) of a record; the topic is known."""

class TypedMethods(Generic[KeyT, ValueT]):
    """Base class of `Topic` with its `enqueue`.

    Args:
        producer: gets the records.
        records: their types and serializers.
        asks_producer: the producer's class overrides send methods, which get the bytes if there are no hooks.
    """

    def __init__(
        self, producer: EnqueueMethod, records: TopicRecords[KeyT, ValueT], *, asks_producer: bool
    ) -> None: ...
    def enqueue(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> Coroutine[object, None, Delivery]:
        """As `Producer.enqueue`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.enqueue`.
        """
    def _take(self, /, *record: *TypedArgs) -> Delivery | RecordArguments | None:
        """Check the types, run serializers and hooks, and append the record.

        Returns:
            The delivery; a record that has to wait; or None if the producer's own method must be called.
        """
    def _append_or_wait(self, /, *record: *TypedArgs) -> Delivery | RecordArguments | UnfinishedRecord | None:
        """As `_take`, also for a record whose serializers are awaited."""
    def _enqueue_within(self, deadline: float, /, *record: *TypedArgs) -> Coroutine[object, None, Delivery]:
        """Enqueue a record with a deadline of its own."""
    def _open_pipeline(self) -> RecordPipeline:
        """Return the producer's pipeline; raises if no records are accepted."""
    def _enqueue_slowly(
        self, taken: RecordArguments | UnfinishedRecord | None, /, *record: *TypedArgs
    ) -> Coroutine[object, None, Delivery]:
        """Enqueue a record that has to wait, or by the producer's own method."""
