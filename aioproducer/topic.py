"""A topic and the types of its records: `producer.topic("orders", key=str, value=Order)`.

The verbs are the producer's own. What the handle adds is that type checkers know what goes into the topic, that
everything else is refused at the call, and that the bytes are derived from the types. Its records go the way of all
records: interceptors, serializers, partitioner (`preparation.py`), then the append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aioproducer.bulk_delivery import rows_of
from aioproducer.coroutine_functions import mark_as_coroutine_functions
from aioproducer.preparation import PreparedRecord, Serializers
from aioproducer.records import check_topic_name, normalize_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import Row
    from aioproducer._native.delivery import Delivery, OnDelivery
    from aioproducer.admission import Admission
    from aioproducer.bulk_delivery import BulkDelivery, EnqueueRow
    from aioproducer.record_verbs import RecordVerbs
    from aioproducer.records import RecordMetadata

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class TopicRecords(Generic[KeyT, ValueT]):
    """What the records of a topic have in common.

    Args:
        name: of the topic.
        key: a type, or a serializer.
        value: a type, or a serializer.
        headers: of every record, before its own.

    Raises:
        TypeError, ValueError: a name no topic has, a type without an encoding, headers of the wrong form.
    """

    def __init__(self, name: str, *, key: object, value: object, headers: object = None) -> None:
        from aioproducer.type_serializers import part_type  # noqa: PLC0415  # a tenth of the package's import, for few

        check_topic_name(name)
        self.name = name
        self._key = part_type("key", key)
        self._value = part_type("value", value)
        self._headers = normalize_headers(headers)
        self._serializers = Serializers(self._key.serialize, self._value.serialize)

    def check(self, value: ValueT | None, key: KeyT | None) -> None:
        """Refuse what is not of the topic's types.

        Raises:
            TypeError: names the argument and what is allowed.
        """
        self._value.check("value", value, self.name)
        self._key.check("key", key, self.name)

    def serialized(self, value: ValueT | None, key: KeyT | None) -> tuple[object, object]:
        """Return the bytes of value and key.

        Raises:
            TypeError: as `check`.
            SerializationError: a serializer failed.
        """
        return self._value.bytes_of("value", value, self.name), self._key.bytes_of("key", key, self.name)

    def record(
        self,
        value: ValueT | None,
        *,
        key: KeyT | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
    ) -> PreparedRecord:
        """Put a record together.

        Raises:
            TypeError: key or value is not of the topic's types.
        """
        self.check(value, key)
        return PreparedRecord(
            self.name,
            value,
            key,
            partition,
            timestamp,
            self.headers_with(headers),
            on_delivery,
            serializers=self._serializers,
        )

    def headers_with(self, headers: Headers | None) -> Headers | None:
        """Put the topic's headers before a record's own."""
        if headers is None:
            return self._headers or None
        return (*self._headers, *normalize_headers(headers))

    def __repr__(self) -> str:
        key, value = (part.name or "a serializer's" for part in (self._key, self._value))
        return f"{self.name!r} key={key} value={value}"


class Topic(Generic[KeyT, ValueT]):
    """A topic of a producer; made by `Producer.topic`. As good as its producer: it holds no records itself.

    Where a producer runs no other code of the user's, its own verb gets the bytes; else the record goes the longer
    way, with its serializers, so that interceptors and partitioner see the objects.

    Args:
        records: what they have in common.
        producer: whose topic it is.
        admission: the longer way in, of a producer that runs; raises otherwise.
        enqueue_each: enqueues many records, one after another.
    """

    def __init__(
        self,
        records: TopicRecords[KeyT, ValueT],
        producer: RecordVerbs,
        *,
        admission: Callable[[], Admission],
        enqueue_each: Callable[[Iterable[Row], EnqueueRow], Awaitable[BulkDelivery]],
    ) -> None:
        self._records = records
        self._producer = producer
        self._admission = admission
        self._enqueue_each = enqueue_each

    @property
    def name(self) -> str:
        """Of the topic."""
        return self._records.name

    def send(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As `Producer.send`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.send`.
        """
        admission = self._admission()
        if admission.runs_code_of_the_user:
            return admission.send(
                self._records.record(
                    value, key=key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
                )
            )
        value_bytes, key_bytes = self._records.serialized(value, key)
        return self._producer.send(
            self._records.name,
            value_bytes,
            key=key_bytes,
            partition=partition,
            timestamp=timestamp,
            headers=self._records.headers_with(headers),
            on_delivery=on_delivery,
        )

    async def send_and_wait(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordMetadata:
        """As `Producer.send_and_wait`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.send_and_wait`.
        """
        delivery = await self.enqueue(
            value, key=key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
        )
        return await delivery

    def enqueue(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Coroutine[object, None, Delivery]:
        """As `Producer.enqueue`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.enqueue`.
        """
        admission = self._admission()
        if admission.runs_code_of_the_user:
            return admission.enqueue(
                self._records.record(
                    value, key=key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
                )
            )
        value_bytes, key_bytes = self._records.serialized(value, key)
        return self._producer.enqueue(
            self._records.name,
            value_bytes,
            key=key_bytes,
            partition=partition,
            timestamp=timestamp,
            headers=self._records.headers_with(headers),
            on_delivery=on_delivery,
        )

    def send_nowait(
        self,
        value: ValueT | None = None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As `Producer.send_nowait`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.send_nowait`.
        """
        admission = self._admission()
        if admission.runs_code_of_the_user:
            return admission.send_nowait(
                self._records.record(
                    value, key=key, partition=partition, timestamp=timestamp, headers=headers, on_delivery=on_delivery
                )
            )
        value_bytes, key_bytes = self._records.serialized(value, key)
        return self._producer.send_nowait(
            self._records.name,
            value_bytes,
            key=key_bytes,
            partition=partition,
            timestamp=timestamp,
            headers=self._records.headers_with(headers),
            on_delivery=on_delivery,
        )

    async def send_many(
        self,
        values: Iterable[ValueT | None],
        *,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> BulkDelivery:
        """As `Producer.send_many`; one that is not of the topic's types keeps no other back, it is in the result."""
        await self.partitions_for()
        pairs = None if headers is None else normalize_headers(headers)
        rows = rows_of(values, keys, partition=partition, timestamp=timestamp, headers=pairs)
        return await self._enqueue_each(rows, self._enqueue_row)

    def _enqueue_row(  # noqa: PLR0917  # as it stands in a row
        self,
        value: object,
        key: object,
        partition: int | None,
        timestamp: int | None,
        headers: Headers | None,
    ) -> Coroutine[object, None, Delivery]:
        given: tuple[ValueT | None, KeyT | None] = (value, key)  # type: ignore[assignment]  # `enqueue` checks them
        return self.enqueue(given[0], key=given[1], partition=partition, timestamp=timestamp, headers=headers)

    async def partitions_for(self) -> list[int]:
        """As `Producer.partitions_for`."""
        return await self._producer.partitions_for(self.name)

    def __repr__(self) -> str:
        return f"<Topic {self._records!r}>"


mark_as_coroutine_functions(Topic.send, Topic.enqueue)
