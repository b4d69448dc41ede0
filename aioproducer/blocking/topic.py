"""A topic and the types of its records, for callers without an event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from aioproducer._producer.arguments import owned, owned_headers
from aioproducer._threads.calls import wait_for
from aioproducer.blocking.handoff_queue import QueuedRecord, check_given, size_of, time_of_call
from aioproducer.records import normalize_headers

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Iterable

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery
    from aioproducer._producer.bulk import BulkDelivery, BulkResult
    from aioproducer._producer.topic import Topic, TopicRecords
    from aioproducer.records import RecordMetadata

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


class SendMany(Protocol):
    """`send_many` of a producer or a topic, with all but the columns."""

    def __call__(self, values: Iterable[object], *, keys: Iterable[object] | None) -> Awaitable[BulkDelivery]:
        """Enqueue one record for each value."""
        ...


SendColumns: TypeAlias = "Callable[[SendMany, Iterable[object], Iterable[object] | None], BulkResult]"
"""Calls it on the loop with values and keys, and waits until all records have ended."""


class InTurn(Protocol):
    """Calls a coroutine function on the loop, when all that was queued before was given to the producer."""

    def __call__(self, function: Callable[[], Awaitable[ResultT]]) -> concurrent.futures.Future[ResultT]:
        """Return its result to come."""
        ...


class BlockingTopic(Generic[KeyT, ValueT]):
    """A topic of a `BlockingProducer`; made by `BlockingProducer.topic`. Safe to share between threads.

    Args:
        topic: of the producer on the background loop.
        records: what they have in common.
        handed: the same topic, for records that are not waited for.
        in_turn: the way to the loop that is waited for.
        put: the way to the loop that is not.
        send_columns: the way of many records in one call.
        partitions_of: looks a topic up, waiting for no record.
    """

    def __init__(  # noqa: PLR0913  # one for each way to the loop
        self,
        topic: Topic[KeyT, ValueT],
        records: TopicRecords[KeyT, ValueT],
        *,
        handed: Topic[KeyT, ValueT],
        in_turn: InTurn,
        put: Callable[[QueuedRecord], None],
        send_columns: SendColumns,
        partitions_of: Callable[[str], list[int]],
    ) -> None:
        self._topic = topic
        self._records = records
        self._handed = handed
        self._in_turn = in_turn
        self._put = put
        self._send_columns = send_columns
        self._partitions_of = partitions_of

    @property
    def name(self) -> str:
        """Of the topic."""
        return self._topic.name

    def send(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordMetadata:
        """As `BlockingProducer.send`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `BlockingProducer.send`.
        """
        return wait_for(
            self.send_threadsafe(
                value, key=key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
            )
        )

    def send_threadsafe(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> concurrent.futures.Future[RecordMetadata]:
        """As `BlockingProducer.send_threadsafe`; a key or value of another type is an error of the future too."""
        return self._in_turn(
            partial(
                self._topic.send_and_wait,
                owned(value),
                key=owned(key),
                partition=partition,
                timestamp=timestamp,
                headers=owned_headers(headers),
                on_delivery=on_delivery,
            )
        )

    def enqueue(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """As `BlockingProducer.enqueue`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `BlockingProducer.enqueue`.
        """
        self._records.check(value, key)
        check_given(partition, timestamp, on_delivery)
        value, key = owned(value), owned(key)
        enqueue = partial(
            self._handed.enqueue,
            value,
            key=key,
            partition=partition,
            timestamp=time_of_call() if timestamp is None else timestamp,
            headers=None if headers is None else normalize_headers(headers),
        )
        self._put(QueuedRecord(enqueue, size_of(key) + size_of(value), on_delivery))

    def send_many(
        self,
        values: Iterable[ValueT | None],
        *,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> BulkResult:
        """As `BlockingProducer.send_many`; one of another type keeps no other back, it is in the result."""
        send_many = partial(self._topic.send_many, partition=partition, timestamp=timestamp, headers=headers)
        return self._send_columns(send_many, values, keys)

    def partitions_for(self) -> list[int]:
        """As `BlockingProducer.partitions_for`."""
        return self._partitions_of(self.name)

    def __repr__(self) -> str:
        return f"<BlockingTopic {self._records!r}>"
