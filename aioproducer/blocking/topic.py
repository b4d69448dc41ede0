"""A topic with typed keys and values, for callers without an event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aioproducer._producer.arguments import owned, owned_headers
from aioproducer._producer.names_elsewhere import OF_TOPICS, explains
from aioproducer._shown_values import in_any_state
from aioproducer._threads.calls import wait_for
from aioproducer.blocking._handoff_queue import queued_record

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Iterable

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery
    from aioproducer._producer.arguments import CallDeadline
    from aioproducer._producer.bulk import BulkDelivery, BulkResult
    from aioproducer._producer.topic import Topic, TopicRecords
    from aioproducer.blocking._handoff_queue import QueuedRecord
    from aioproducer.records import RecordMetadata

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class SendMany(Protocol):
    """`send_many` of a producer or a topic, with all but the columns."""

    def __call__(self, values: Iterable[object], **others: Iterable[object] | None) -> Awaitable[BulkDelivery]:
        """Enqueue one record for each value."""
        ...


class SendAndWait(Protocol):
    """`send_and_wait` of a producer or a topic, with all arguments but the deadline."""

    def __call__(self, *, deadline: float = ...) -> Awaitable[RecordMetadata]:
        """Send a record and wait."""
        ...


class TopicQueue(Protocol):
    """The methods of a `BlockingProducer` that its topics call."""

    def partitions_for(self, topic: str) -> list[int]:
        """As `BlockingProducer.partitions_for`."""
        ...

    def _send_in_turn(
        self, topic: str, send: SendAndWait, seconds: float | None
    ) -> concurrent.futures.Future[RecordMetadata]: ...

    def _call_deadline(self, topic: str, seconds: float | None) -> CallDeadline | None: ...

    def _put(self, record: QueuedRecord) -> None: ...

    def _send_columns(
        self, send_many: SendMany, values: Iterable[object], **others: Iterable[object] | None
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

    def send(  # noqa: PLR0913  # a record has that many parts
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> RecordMetadata:
        """As `BlockingProducer.send`; a key or value that is not of the topic's types is a `TypeError`."""
        return wait_for(
            self.send_threadsafe(
                value,
                key=key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=on_delivery,
                deadline=deadline,
            )
        )

    def send_threadsafe(  # noqa: PLR0913  # as send
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> concurrent.futures.Future[RecordMetadata]:
        """As `BlockingProducer.send_threadsafe`; a key or value of another type is an error of the future too."""
        sending = partial(
            self._topic.send_and_wait,
            owned(value),
            key=owned(key),
            partition=partition,
            timestamp=timestamp,
            headers=owned_headers(headers),
            on_delivery=on_delivery,
        )
        return self._producer._send_in_turn(self.name, sending, deadline)

    def enqueue(  # noqa: PLR0913  # as send
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> None:
        """As `BlockingProducer.enqueue`; a key or value that is not of the topic's types is a `TypeError`."""
        self._records.check(value, key)
        self._producer._put(
            queued_record(
                self._non_blocking.enqueue,  # type: ignore[arg-type]  # checked in the line above
                value,
                key=key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=on_delivery,
                deadline=self._producer._call_deadline(self.name, deadline),
            )
        )

    def send_many(  # noqa: PLR0913  # as BlockingProducer.send_many
        self,
        values: Iterable[ValueT | None],
        *,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        timestamps: Iterable[int | None] | None = None,
        record_headers: Iterable[Headers | None] | None = None,
    ) -> BulkResult:
        """As `BlockingProducer.send_many`; a key or value of another type is an error in the result."""
        send_many = partial(self._topic.send_many, partition=partition, timestamp=timestamp, headers=headers)
        return self._producer._send_columns(
            send_many, values, keys=keys, timestamps=timestamps, record_headers=record_headers
        )

    def partitions_for(self) -> list[int]:
        """As `BlockingProducer.partitions_for`."""
        return self._producer.partitions_for(self.name)

    @in_any_state
    def __repr__(self) -> str:
        return f"<BlockingTopic {self._records!r}>"
