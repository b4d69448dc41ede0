"""A record as a row: what is not valid is refused here, in the call, before anything is inserted."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from aioproducer._logs import event_log
from aioproducer._native.bound_serializer import PendingPart
from aioproducer.errors import ConfigurationError, Outcome, RecordFilteredError, RecordTooLargeError, SerializationError
from aioproducer.interceptors import InterceptorChain, ProducerInterceptor, check_interceptors
from aioproducer.records import (
    Headers,
    ProducerRecord,
    check_payload,
    normalize_headers,
    with_headers,
)
from aioproducer.serializers import PendingAwaitable, SerializerArgument, bind_serializer

RECORD_OVERHEAD: Final = 96
"""Most bytes that a batch of one record without headers takes beside its key and value."""
HEADER_OVERHEAD: Final = 10
"""Most bytes that a header takes beside its name and value, short of 2^28 bytes."""
MAX_REQUEST_SIZE: Final = 1_048_576
_BASE64: Final = "base64"
_PAIR: Final = 2


class Row(NamedTuple):
    """The columns of one row, without those that the database fills."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    partition: int | None
    timestamp: int | None


class PendingRow(NamedTuple):
    """A row whose serializers are asynchronous."""

    record: ProducerRecord
    key: bytes | PendingPart | None
    value: bytes | PendingPart | None
    headers: list[tuple[str, bytes | None]]


class RowMaker:
    """Makes rows of the arguments of `enqueue`.

    Args:
        key_serializer: as of a producer.
        value_serializer: as of a producer.
        interceptors: whose `on_send` sees each record, before it is serialized.
        max_request_size: as of the relay's producer.

    Raises:
        ConfigurationError: an invalid argument.
    """

    def __init__(
        self,
        *,
        key_serializer: SerializerArgument | None,
        value_serializer: SerializerArgument | None,
        interceptors: Sequence[ProducerInterceptor],
        max_request_size: int,
    ) -> None:
        try:
            check_interceptors(interceptors)
            self._key = None if key_serializer is None else bind_serializer("key_serializer", key_serializer)
            self._value = None if value_serializer is None else bind_serializer("value_serializer", value_serializer)
        except TypeError as error:
            raise ConfigurationError(str(error)) from error
        if not isinstance(max_request_size, int) or isinstance(max_request_size, bool) or max_request_size < 1:
            raise ConfigurationError(f"max_request_size must be an int of at least 1, not {max_request_size!r}")
        self._max_request_size = max_request_size
        self._interceptors = InterceptorChain(interceptors, event_log("outbox")) if interceptors else None

    def row(self, record: ProducerRecord) -> Row | PendingRow:
        """Serialize and check a record.

        Raises:
            TypeError, ValueError: a part of it.
            SerializationError: a serializer failed.
            RecordTooLargeError: larger than `max_request_size`.
            RecordFilteredError: an interceptor dropped it.
        """
        record = _traced(self._intercepted(record))
        headers = list(record.headers)
        key = self._key(record.topic, record.key, headers) if self._key else _payload("key", record.key)
        value = self._value(record.topic, record.value, headers) if self._value else _payload("value", record.value)
        if isinstance(key, PendingPart) or isinstance(value, PendingPart):
            return PendingRow(record, key, value, headers)
        return self._finished(record, key, value, headers=headers)

    def rows(self, records: Iterable[ProducerRecord]) -> list[Row | PendingRow]:
        """Serialize and check records.

        Raises:
            TypeError, ValueError: a record; names its position.
            SerializationError, RecordTooLargeError: as `row`, with a note of the position.
            RecordFilteredError: an interceptor dropped one.
        """
        made: list[Row | PendingRow] = []
        for position, record in enumerate(checked_records(records)):
            try:
                made.append(self.row(record))
            except (TypeError, ValueError) as error:
                if type(error) in {TypeError, ValueError}:
                    raise type(error)(f"records[{position}]: {error}") from error
                error.add_note(f"of records[{position}]")
                raise
        return made

    async def finished(self, pending: PendingRow) -> Row:
        """Wait for the serializers; errors as `row`."""
        parts = pending.key, pending.value
        key, value = [await part.finish() if isinstance(part, PendingAwaitable) else part for part in parts]
        assert not isinstance(key, PendingPart)
        assert not isinstance(value, PendingPart)
        return self._finished(pending.record, key, value, headers=pending.headers)

    def _intercepted(self, record: ProducerRecord) -> ProducerRecord:
        if self._interceptors is None:
            return record
        passed = self._interceptors.on_send(record)
        if passed is None:
            text = f"an interceptor dropped the record for topic {record.topic!r}"
            raise RecordFilteredError(text, topic=record.topic, outcome=Outcome.NOT_WRITTEN)
        return passed

    def _finished(
        self,
        record: ProducerRecord,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> Row:
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(HEADER_OVERHEAD + len(name.encode()) + len(content or b"") for name, content in headers)
        if size > self._max_request_size:
            text = (
                f"the record for topic {record.topic!r} takes up to {size:,} bytes; "
                f"max_request_size={self._max_request_size:,} allows no more"
            )
            raise RecordTooLargeError(
                text,
                size_bytes=size,
                limit_bytes=self._max_request_size,
                option="max_request_size",
                topic=record.topic,
                outcome=Outcome.NOT_WRITTEN,
            )
        topic = str.__str__(record.topic)  # of a StrEnum, its text
        return Row(topic, key, value, encode_headers(headers), record.partition, record.timestamp)


def refuse_pending(pending: PendingRow) -> SerializationError:
    """Return the error of an asynchronous serializer for a session or connection that is not."""
    parts = [part for part in (pending.key, pending.value) if isinstance(part, PendingAwaitable)]
    for part in parts:
        part.close()
    text = f"{parts[0].name} is asynchronous, and the session or connection is not: enqueue with an asynchronous one"
    return SerializationError(text, topic=pending.record.topic, outcome=Outcome.NOT_WRITTEN)


def _payload(name: str, payload: object) -> bytes | None:
    check_payload(name, payload, "Outbox")
    assert payload is None or isinstance(payload, bytes | bytearray | memoryview)
    return None if payload is None else bytes(payload)


def _traced(record: ProducerRecord) -> ProducerRecord:
    """Add the current trace context to the headers, where the application uses OpenTelemetry and gave none itself."""
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return record
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    given = {name for name, _ in record.headers}
    if not carrier or given & carrier.keys():
        return record
    return with_headers(record, (*record.headers, *((name, text.encode()) for name, text in carrier.items())))


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Return headers as JSON; None for none. Values that are not UTF-8 are {"base64": text}."""
    if not headers:
        return None
    return json.dumps([[name, _shown(content)] for name, content in headers], separators=(",", ":"))


def _shown(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(content).decode()}


def decode_headers(text: str | None) -> list[tuple[str, bytes | None]] | None:
    """Return the headers of a row, also as other programs write them: an object of texts, or an empty text for none.

    Raises:
        ValueError: it is not such JSON; says what is allowed.
    """
    if not text:
        return None
    try:
        document = json.loads(text)
        pairs = document.items() if isinstance(document, dict) else map(_pair, document)
        return [(_name(name), _content(content)) for name, content in pairs]
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        allowed = 'JSON like [["name", "text"], ["name", null], ["name", {"base64": "..."}]] or {"name": "text"}'
        raise ValueError(f"headers must be {allowed}, not {str(text)[:80]!r}: {error}") from error


def _pair(pair: object) -> tuple[object, object]:
    if not isinstance(pair, list) or len(pair) != 2:  # noqa: PLR2004  # a name and a value
        raise TypeError(f"a header is {pair!r}")
    return pair[0], pair[1]


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a name is {type(name).__name__}")
    return name


def _content(content: object) -> bytes | None:
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, dict) and content.keys() == {_BASE64}:
        return base64.b64decode(content[_BASE64], validate=True)
    raise TypeError(f"a value is {type(content).__name__}")


def record_of(
    topic: str,
    value: object,
    *,
    key: object,
    partition: int | None,
    timestamp: int | None,
    headers: Headers | None,
) -> ProducerRecord:
    """Return a checked record."""
    return ProducerRecord(topic, value, key, partition, timestamp, normalize_headers(headers))


def checked_records(records: Iterable[ProducerRecord]) -> list[ProducerRecord]:
    """Return the records of a call.

    Raises:
        TypeError: not records; names the position.
    """
    if isinstance(records, ProducerRecord) or not isinstance(records, Iterable):
        raise TypeError(f"records must be an iterable of ProducerRecord, not {type(records).__name__}")
    checked = list(records)
    for position, record in enumerate(checked):
        if not isinstance(record, ProducerRecord):
            raise TypeError(f"records[{position}] must be a ProducerRecord, not {type(record).__name__}")
    return checked
