"""A topic and the types of its records: `producer.topic("orders", key=str, value=Order)`.

Its methods are those of the producer. The types of keys and values are known to type checkers and checked in each call,
and they determine the serializers. Records run through the producer's pipeline (`_native/record_pipeline.pyx`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from aioproducer._native.delivery import Delivery
from aioproducer._native.typed_topic import TypedMethods
from aioproducer._producer.admission import Admission
from aioproducer._producer.arguments import deadline_arguments, mark_as_coroutine_functions
from aioproducer._producer.bulk import Columns
from aioproducer._producer.names_elsewhere import OF_TOPICS, explains
from aioproducer._producer.record_fields import ColumnFields, check_names, shows_fields
from aioproducer._shown_values import in_any_state
from aioproducer.records import check_topic_name, normalize_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
    from typing import Unpack

    from aioproducer._accumulator.partition import RecordDeadline
    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import Row
    from aioproducer._native.delivery import OnDelivery
    from aioproducer._native.enqueue import EnqueueMethod
    from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline
    from aioproducer._native.typed_topic import TypedArgs
    from aioproducer._producer.awaited_serializers import UnfinishedRecord
    from aioproducer._producer.bulk import BulkDelivery, EnqueueRow
    from aioproducer._producer.record_fields import RecordFields
    from aioproducer._producer.record_hooks import UsedSerializers
    from aioproducer._producer.topic_types import PartType
    from aioproducer.records import RecordMetadata

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")
Result_co = TypeVar("Result_co", covariant=True)


class ProducerMethod(Protocol[Result_co]):
    """`send`, `send_nowait` or `enqueue` of a producer."""

    def __call__(self, topic: str, value: object, **fields: Unpack[RecordFields[object]]) -> Result_co: ...


class TopicProducer(Protocol):
    """The methods of a producer that a topic calls."""

    @property
    def send(self) -> ProducerMethod[Delivery]:
        """`Producer.send`."""

    @property
    def send_nowait(self) -> ProducerMethod[Delivery]:
        """`Producer.send_nowait`."""

    @property
    def enqueue(self) -> ProducerMethod[Coroutine[object, None, Delivery]]:
        """`Producer.enqueue`."""

    async def partitions_for(self, topic: str) -> list[int]:
        """As `Producer.partitions_for`."""


class TopicRecords(Generic[KeyT, ValueT]):
    """Name, types and headers of a topic's records; arguments and errors as `Producer.topic`."""

    def __init__(self, name: str, *, key: object, value: object, headers: object = None) -> None:
        from aioproducer._producer.topic_types import part_type  # noqa: PLC0415  # a tenth of the package's import, rarely used

        check_topic_name(name)
        self.name: str = name
        self.key: PartType = part_type("key", key)
        self.value: PartType = part_type("value", value)
        self.headers: Headers = normalize_headers(headers)

    def check(self, value: object, key: object) -> None:
        """Raise a `TypeError` for a value or key of another type."""
        self.value.check("value", value, self.name)
        self.key.check("key", key, self.name)

    def serialized(self, value: object, key: object, headers: Headers | None) -> tuple[object, object, Headers | None]:
        """Return the bytes of value and key, and the headers."""
        own = list(self.headers_with(headers) or ())
        key_bytes, value_bytes = self.key.bytes_of(key, self.name, own), self.value.bytes_of(value, self.name, own)
        return value_bytes, key_bytes, tuple(own) or None

    def use_serializers(self, used: UsedSerializers) -> None:
        """Configure the serializers, as the first use of a producer or topic does."""
        for part, is_key in ((self.key, True), (self.value, False)):
            used.use(f"{'key' if is_key else 'value'} serializer", part.given, is_key=is_key)

    def headers_with(self, headers: Headers | None) -> Headers | None:
        """Put the topic's headers before a record's own."""
        if headers is None:
            return self.headers or None
        return (*self.headers, *normalize_headers(headers))

    def __repr__(self) -> str:
        key, value = (part.name or "a serializer's" for part in (self.key, self.value))
        return f"{self.name!r} key={key} value={value}"


@explains(OF_TOPICS)
class Topic(TypedMethods[KeyT, ValueT], Generic[KeyT, ValueT]):
    """A topic of a producer; made by `Producer.topic`. Usable as long as its producer: it holds no records itself.

    Its records run through the producer's pipeline with the topic's serializers, so interceptors and partitioner see
    the objects. If a subclass of the producer overrides the send methods, and there are no interceptors, serializers or
    partitioner, these methods are called, with bytes.

    Args:
        admission: returns the admission of records that must wait; raises while no records are taken.
        enqueue_each: enqueues many records, one after another.
        asks_producer: the producer's class overrides the send methods.
    """

    def __init__(
        self,
        records: TopicRecords[KeyT, ValueT],
        producer: TopicProducer,
        *,
        admission: Callable[[], Admission],
        enqueue_each: Callable[[Iterable[Row] | AsyncIterator[Row], EnqueueRow], Awaitable[BulkDelivery]],
        asks_producer: bool,
    ) -> None:
        # A Protocol cannot say that the producer is a native class as well.
        super().__init__(cast("EnqueueMethod", producer), records, asks_producer=asks_producer)
        self._records = records
        self._producer = producer
        self._admission = admission
        self._enqueue_each = enqueue_each

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
    ) -> Delivery:
        """As `Producer.send`; a key or value that is not of the topic's types is a `TypeError`."""
        record_deadline = None if deadline is None else self._admission().deadline(self.name, deadline)
        taken = self._take(value, key, partition, timestamp, headers, on_delivery)
        if record_deadline is None and type(taken) is Delivery:
            return taken
        arguments = (value, key, partition, timestamp, headers, on_delivery)
        return self._dispatch(taken, arguments, record_deadline, admit=Admission.send, override=self._producer.send)

    @shows_fields
    async def send_and_wait(self, value: ValueT | None = None, **fields: Unpack[RecordFields[KeyT]]) -> RecordMetadata:
        """As `Producer.send_and_wait`; a key or value that is not of the topic's types is a `TypeError`."""
        return await (await self.enqueue(value, **fields))

    def send_nowait(  # noqa: PLR0913  # as send
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        deadline: float | None = None,
    ) -> Delivery:
        """As `Producer.send_nowait`; a key or value that is not of the topic's types is a `TypeError`."""
        record_deadline = None if deadline is None else self._admission().deadline(self.name, deadline)
        taken = self._take(value, key, partition, timestamp, headers, on_delivery)
        if record_deadline is None and type(taken) is Delivery:
            return taken
        arguments = (value, key, partition, timestamp, headers, on_delivery)
        return self._dispatch(
            taken, arguments, record_deadline, admit=Admission.send_nowait, override=self._producer.send_nowait
        )

    @shows_fields
    async def send_many(
        self, values: Iterable[ValueT | None] | AsyncIterable[ValueT | None], **fields: Unpack[ColumnFields[KeyT]]
    ) -> BulkDelivery:
        """As `Producer.send_many`; a key or value of another type is an error in the result."""
        check_names("Topic.send_many", fields, of=ColumnFields)
        columns = Columns(values, **fields)
        await self.partitions_for()
        rows = columns.async_rows() if columns.is_async else columns.rows()
        return await self._enqueue_each(rows, self._enqueue_row)

    def _enqueue_row(self, *row: *Row) -> Coroutine[object, None, Delivery]:
        value, key, partition, timestamp, headers = row
        given: tuple[ValueT | None, KeyT | None] = (value, key)  # type: ignore[assignment]  # `enqueue` checks them
        return self.enqueue(given[0], key=given[1], partition=partition, timestamp=timestamp, headers=headers)

    def _open_pipeline(self) -> RecordPipeline:
        return self._admission().pipeline

    def _enqueue_slowly(
        self, taken: RecordArguments | UnfinishedRecord | None, *arguments: *TypedArgs
    ) -> Coroutine[object, None, Delivery]:
        if taken is not None:
            return self._admission().enqueue(taken)
        return self._dispatch(taken, arguments, None, admit=Admission.enqueue, override=self._producer.enqueue)

    def _enqueue_within(self, deadline: float, *arguments: *TypedArgs) -> Coroutine[object, None, Delivery]:
        admission = self._admission()
        record_deadline = admission.deadline(self.name, deadline)
        taken = admission.with_deadline(self._append_or_wait(*arguments), record_deadline)
        if taken is not None:
            return admission.enqueue(taken, record_deadline)
        return self._dispatch(
            None, arguments, record_deadline, admit=Admission.enqueue, override=self._producer.enqueue
        )

    def _dispatch(
        self,
        taken: Delivery | RecordArguments | None,
        arguments: TypedArgs,
        deadline: RecordDeadline | None,
        *,
        admit: Callable[[Admission, Delivery | RecordArguments, RecordDeadline | None], ResultT],
        override: ProducerMethod[ResultT],
    ) -> ResultT:
        """Admit a record; without one, call the method that a subclass of the producer has overridden."""
        if taken is not None:
            return admit(self._admission(), taken, deadline)
        value, key, partition, timestamp, headers, on_delivery = arguments
        value_bytes, key_bytes, headers = self._records.serialized(value, key, headers)
        return override(
            self.name,
            value_bytes,
            key=key_bytes,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
            **deadline_arguments(None if deadline is None else deadline.seconds),
        )

    async def partitions_for(self) -> list[int]:
        """As `Producer.partitions_for`."""
        return await self._producer.partitions_for(self.name)

    @in_any_state
    def __repr__(self) -> str:
        return f"<Topic {self._records!r}>"


mark_as_coroutine_functions(Topic.send, Topic.enqueue)
