"""A record as one line, for people or for programs, whatever its bytes are."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from aioproducer._protocol.cluster_text import printable

APPEND_TIME: Final = 1
NULL: Final = "null"


class TailFormat(StrEnum):
    """How records are shown."""

    TEXT = "text"
    JSON = "json"
    VALUE = "value"


class Record(Protocol):
    """What is shown of a record: the fields of aiokafka's `ConsumerRecord`."""

    @property
    def topic(self) -> str: ...  # noqa: D102

    @property
    def partition(self) -> int: ...  # noqa: D102

    @property
    def offset(self) -> int: ...  # noqa: D102

    @property
    def timestamp(self) -> int:
        """Ms since the epoch."""

    @property
    def timestamp_type(self) -> int:
        """0: of the producer; 1: of the broker."""

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def value(self) -> bytes | None: ...  # noqa: D102

    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]: ...  # noqa: D102


def line_writer(kind: TailFormat) -> Callable[[Record], bytes]:
    """The function that makes a line of a record, its end included."""
    return {TailFormat.TEXT: text_line, TailFormat.JSON: json_line, TailFormat.VALUE: value_line}[kind]


def text_line(record: Record) -> bytes:
    r"""`PARTITION:OFFSET KEY VALUE` with tabs between.

    Control characters are escaped as in Python (`\n`, `\x1b`), so that a record is a line and cannot play with the
    terminal; bytes that are not UTF-8 are `0x` and hex digits; null is `null`.
    """
    return f"{record.partition}:{record.offset}\t{_shown(record.key)}\t{_shown(record.value)}\n".encode()


def json_line(record: Record) -> bytes:
    """A JSON object; a key, value or header that is not UTF-8 is `{"base64": "..."}` in place of a string."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "append" if record.timestamp_type == APPEND_TIME else "create",
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": [[name, _json(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def value_line(record: Record) -> bytes:
    """The bytes of the value and a line end; null is an empty line."""
    return (record.value or b"") + b"\n"


def _shown(content: bytes | None) -> str:
    if content is None:
        return NULL
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    return printable(text, None)


def _json(content: bytes | None) -> str | Mapping[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
