"""A topic with typed keys and values, for callers without an event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aioproducer._producer.arguments import owned
from aioproducer._producer.names_elsewhere import OF_TOPICS, explains
from aioproducer._producer.record_fields import BlockingColumnFields, check_names, owned_fields, shows_fields
from aioproducer._shown_values import in_any_state
from aioproducer._threads.calls import wait_for
from aioproducer.blocking._handoff_queue import queued_record

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Unpack

    from aioproducer._producer.bulk import BulkDelivery, BulkResult
    from aioproducer._producer.record_fields import RecordFields
    from aioproducer._producer.topic import Topic, TopicRecords
    from aioproducer.blocking._handoff_queue import EnqueueRecord, QueuedRecord
    from aioproducer.records import RecordMetadata

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
KeyT_contra = TypeVar("KeyT_contra", contravariant=True)
ValueT_contra = TypeVar("ValueT_contra", contravariant=True)


class SendMany(Protocol[ValueT_contra, KeyT_contra]):
    """`send_many` of a producer or a topic."""

    def __call__(
        self, values: Iterable[ValueT_contra | None], **fields: Unpack[BlockingColumnFields[KeyT_contra]]
    ) -> Awaitable[BulkDelivery]:
        """Enqueue one record for each value."""
        ...


class TopicQueue(Protocol):
    """The methods of a `BlockingProducer` that its topics call."""

    def partitions_for(self, topic: str) -> list[int]:
        """As `BlockingProducer.partitions_for`."""
        ...

    def _send_in_turn(
        self, sending: Callable[[], Awaitable[RecordMetadata]], deadline: float | None
    ) -> concurrent.futures.Future[RecordMetadata]: ...

    def _delivery_timeout_ms(self, topic: str) -> int: ...

    def _put(self, record: QueuedRecord) -> None: ...

    def _send_columns(
        self, send_many: SendMany[ValueT, KeyT], values: Iterable[ValueT | None], fields: BlockingColumnFields[KeyT]
    ) -> BulkResult: ...


@explains(OF_TOPICS)
class BlockingTopic(Generic[KeyT, ValueT]):
    """A topic of a `BlockingProducer`; made by `BlockingProducer.topic`. Safe to share between threads."""

    def __init__(
        self,
        producer: TopicQueue,
        records: TopicRecords[KeyT, ValueT],
        *,
        topic: Topic[KeyT, ValueT],
        non_blocking: Topic[KeyT, ValueT],
    ) -> None:
        self._producer = producer
        self._records = records
        self._topic = topic  # of the producer on the event loop
        self._non_blocking = non_blocking  # the same, for records of `enqueue`

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._records.name

    @shows_fields
    def send(self, value: ValueT | None = None, **fields: Unpack[RecordFields[KeyT]]) -> RecordMetadata:
        """As `BlockingProducer.send`; a key or value that is not of the topic's types is a `TypeError`."""
        return wait_for(self.send_threadsafe(value, **fields))

    @shows_fields
    def send_threadsafe(
        self, value: ValueT | None = None, **fields: Unpack[RecordFields[KeyT]]
    ) -> concurrent.futures.Future[RecordMetadata]:
        """As `BlockingProducer.send_threadsafe`; a key or value of another type is an error of the future too."""
        check_names("BlockingTopic.send_threadsafe", fields)
        fields = owned_fields(fields, self._producer._delivery_timeout_ms(self.name))
        sending = partial(self._topic.send_and_wait, owned(value), **fields)
        return self._producer._send_in_turn(sending, fields.get("deadline"))

    @shows_fields
    def enqueue(self, value: ValueT | None = None, **fields: Unpack[RecordFields[KeyT]]) -> None:
        """As `BlockingProducer.enqueue`; a key or value that is not of the topic's types is a `TypeError`."""
        check_names("BlockingTopic.enqueue", fields)
        self._records.check(value, fields.get("key"))
        enqueue: EnqueueRecord[KeyT] = self._non_blocking.enqueue  # type: ignore[assignment]  # checked in the line above
        timeout_ms = self._producer._delivery_timeout_ms(self.name)
        self._producer._put(queued_record(enqueue, value, fields, delivery_timeout_ms=timeout_ms))

    @shows_fields
    def send_many(self, values: Iterable[ValueT | None], **fields: Unpack[BlockingColumnFields[KeyT]]) -> BulkResult:
        """As `BlockingProducer.send_many`; a key or value of another type is an error in the result."""
        check_names("BlockingTopic.send_many", fields, of=BlockingColumnFields)
        return self._producer._send_columns(self._topic.send_many, values, fields)

    def partitions_for(self) -> list[int]:
        """As `BlockingProducer.partitions_for`."""
        return self._producer.partitions_for(self.name)

    @in_any_state
    def __repr__(self) -> str:
        return f"<BlockingTopic {self._records!r}>"
