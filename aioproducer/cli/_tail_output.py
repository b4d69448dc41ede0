"""Formats a record as one line, and writes it without blocking the event loop."""

import asyncio
import base64
import json
import os
import select
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from aiokafka import ConsumerRecord

from aioproducer._protocol.cluster_text import printable
from aioproducer.cli.process import wait_until_writable

APPEND_TIME: Final = 1
NULL: Final = "null"
STANDARD_OUTPUT = 1


class TailFormat(StrEnum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"
    VALUE = "value"


def line_writer(kind: TailFormat) -> Callable[[ConsumerRecord], bytes]:
    return {TailFormat.TEXT: text_line, TailFormat.JSON: json_line, TailFormat.VALUE: value_line}[kind]


def text_line(record: ConsumerRecord) -> bytes:
    r"""Return `PARTITION:OFFSET KEY VALUE` with tabs between.

    Control characters are escaped as in Python (`\n`, `\x1b`), so that a record is one line and cannot control the
    terminal; bytes that are not UTF-8 are `0x` and hex digits; null is `null`.
    """
    return f"{record.partition}:{record.offset}\t{_shown(record.key)}\t{_shown(record.value)}\n".encode()


def json_line(record: ConsumerRecord) -> bytes:
    """Return a JSON object; a key, value or header that is not UTF-8 becomes `{"base64": "..."}`.

    Characters that are not printable are escaped, so that a record cannot control the terminal.
    """
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
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else _json_escape(letter) for letter in text)
    return text.encode() + b"\n"


def value_line(record: ConsumerRecord) -> bytes:
    return (record.value or b"") + b"\n"


def _shown(content: bytes | None) -> str:
    if content is None:
        return NULL
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    return printable(text, None)


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _json(content: bytes | None) -> str | Mapping[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


class ReaderGoneError(Exception):
    """The reader of standard output has closed the pipe, as after `| head`."""


async def write(content: bytes) -> None:
    """Write everything.

    A slow reader such as a pager blocks a thread and not the loop, which sends the consumer's heartbeats. The thread
    is a daemon and writes to the descriptor, so that the process can end in the middle.

    Raises:
        ReaderGoneError: the reader closed the pipe.
        OSError: the disk is full, or similar.
    """
    loop = asyncio.get_running_loop()
    written: asyncio.Future[None] = loop.create_future()

    def end(error: OSError | None) -> None:
        if written.done():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(_told(error))

    def run() -> None:
        error = _write_all(content)
        if not loop.is_closed():
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=run, name="aioproducer-output", daemon=True).start()
    await written


def is_reader_gone() -> bool:
    poll = select.poll()
    poll.register(STANDARD_OUTPUT, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _told(error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return ReaderGoneError()
    return OSError(f"standard output: {error.strerror or error}")


def _write_all(content: bytes) -> OSError | None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(STANDARD_OUTPUT, rest) :]
        except BlockingIOError:  # full now: standard output is O_NONBLOCK, as asyncio and Node leave it
            wait_until_writable(STANDARD_OUTPUT)
        except OSError as error:
            return error
    return None
