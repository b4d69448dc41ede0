"""Reads lines from files and standard input, in a thread so that no read blocks the event loop, and their formats."""

import asyncio
import csv
import json
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from io import FileIO
from json.encoder import encode_basestring
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

from aioproducer.cli.process import wait_until_readable

STANDARD_INPUT = "-"
CHUNK_BYTES = 256 * 1024
READ_AHEAD = 4  # chunks that may be read before they are taken
NEWLINE = b"\n"


class InputReadError(OSError):
    """An input could not be opened or read; the message names it."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or standard input."""

    name: str
    path: str | None  # None for standard input
    size_bytes: int | None  # None if it is unknown, as for a pipe or terminal

    @contextmanager
    def opened(self) -> Iterator[FileIO]:
        """Open the input unbuffered: a read returns what is available. Standard input is left open."""
        with FileIO(0 if self.path is None else self.path, closefd=self.path is not None) as file:
            yield file


class Chunk(NamedTuple):
    """A piece of an input, empty at the end."""

    input_index: int

    data: bytes


def find_inputs(arguments: Sequence[str]) -> tuple[list[Input], list[str]]:
    """Return the inputs that the arguments name, by default standard input, and a line for each that cannot be read.

    No input is opened, since a pipe can be read only once.
    """
    inputs, problems = [], []
    for argument in arguments or [STANDARD_INPUT]:
        try:
            inputs.append(_standard_input() if argument == STANDARD_INPUT else _file(argument))
        except OSError as error:
            problems.append(f"{_shown(argument)}: {_reason(error)}")
    if list(arguments).count(STANDARD_INPUT) > 1:
        problems.append("- (standard input) is given twice")
    return inputs, problems


async def read_chunks(inputs: Sequence[Input]) -> AsyncGenerator[Chunk]:
    """Yield the inputs in chunks, one input after another, each with an empty chunk at its end.

    The reading thread is a daemon: it may be blocked forever in a pipe, and the process must still end.
    """
    reading = _Reading(inputs, asyncio.get_running_loop())
    threading.Thread(target=reading.run, name="aioproducer-inputs", daemon=True).start()
    try:
        async for chunk in reading.chunks():
            yield chunk
    finally:
        reading.stop()


class _Reading:
    """A reading thread, and the queue between it and the event loop."""

    def __init__(self, inputs: Sequence[Input], loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = inputs
        self._loop = loop
        self._queue: asyncio.Queue[Chunk | InputReadError | None] = asyncio.Queue()
        self._room = threading.Semaphore(READ_AHEAD)
        self._is_stopped = False

    async def chunks(self) -> AsyncGenerator[Chunk]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, InputReadError):
                raise item
            yield item
            self._room.release()

    def stop(self) -> None:
        self._is_stopped = True
        self._room.release()

    def run(self) -> None:
        for index, source in enumerate(self._inputs):
            try:
                go_on = self._read(index, source)
            except OSError as error:
                self._put(InputReadError(f"{source.name}: {_reason(error)}"))
                return
            if not go_on:
                return
        self._put(None)

    def _read(self, index: int, source: Input) -> bool:
        """Read one input to its end; returns False if the reading was stopped."""
        with source.opened() as file:
            data = None
            while data != b"":
                data = file.read(CHUNK_BYTES)
                if data is None:  # nothing now: standard input is O_NONBLOCK, as asyncio and Node leave it
                    wait_until_readable(file.fileno())
                    continue
                self._room.acquire()
                if self._is_stopped or not self._put(Chunk(index, data)):
                    return False
        return True

    def _put(self, item: Chunk | InputReadError | None) -> bool:
        """Put an item into the queue; returns False if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            return False
        return True


def _standard_input() -> Input:
    found = _input("standard input", None, os.fstat(0))
    os.read(0, 0)  # reads nothing, and fails if it is closed or open only for writing
    return found


def _file(path: str) -> Input:
    if not path:  # Path("") would be the current folder
        raise FileNotFoundError(None, "no such file or directory")
    found = _input(path, path, Path(path).stat())
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(None, "permission denied")
    return found


def _input(name: str, path: str | None, status: os.stat_result) -> Input:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(None, "is a directory")
    return Input(name, path, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _shown(argument: str) -> str:
    return "standard input" if argument == STANDARD_INPUT else argument or "''"


def _reason(error: OSError) -> str:
    """Return the system's message without error number and file name."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


class LineSplitter:
    """Cuts the chunks of one input into lines, in bounded memory.

    A line ends with LF or with the end of the input; the format handles a CR.

    Args:
        max_line_bytes: a longer line is reported as None.
    """

    __slots__ = ("_is_too_long", "_max_line_bytes", "_rest")

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in this chunk, without LF; None for a line that is too long."""
        *ends, rest = chunk.split(NEWLINE)
        for end in ends:
            yield self._line(end) if self._rest or self._is_too_long else self._checked(end)
        self._keep(rest)

    def finish(self) -> Iterator[bytes | None]:
        """Yield the last line, if the input does not end with LF."""
        if self._rest or self._is_too_long:
            yield self._line(b"")

    def _line(self, end: bytes) -> bytes | None:
        self._keep(end)
        line = None if self._is_too_long else bytes(self._rest)
        self._rest.clear()
        self._is_too_long = False
        return line

    def _keep(self, piece: bytes) -> None:
        if self._is_too_long or len(self._rest) + len(piece) > self._max_line_bytes:
            self._is_too_long = self._is_too_long or bool(piece)
            self._rest.clear()
        else:
            self._rest += piece

    def _checked(self, line: bytes) -> bytes | None:
        return line if len(line) <= self._max_line_bytes else None


UTF8_MARK: Final = "\ufeff"
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
OPEN_QUOTE: Final = "unexpected end of data"  # the message of `csv` in strict mode for a text that ends within quotes

LONE_CR: Final = "new-line character seen in unquoted field"  # how the message of `csv` for it begins

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | bool | None"
"""A decoded line; numbers stay text, so that a key keeps every digit."""


class Format(StrEnum):
    """Format of the input."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"


class Content(NamedTuple):
    """Value and key of one record."""

    value: bytes
    key: bytes | None


class BadLineError(Exception):
    """A line is invalid.

    Args:
        reason: a description that similar lines share.
        detail: about this line; may be empty.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class NoKeyFieldError(BadLineError):
    """The header of a CSV file lacks the field of --key, which is a usage error."""


def line_format(kind: Format, *, key: str | None, max_record_bytes: int) -> "LineFormat":
    """Return what reads the lines of one input."""
    match kind:
        case Format.LINES:
            return PlainLines()
        case Format.JSONL:
            return JsonLines(key)
        case Format.CSV:
            return CsvRows(key, max_record_bytes)


class PlainLines:
    """Each line without its end is a value; an empty line is an empty value."""

    is_open = needs_header = False

    def read(self, line: bytes) -> Content:
        return Content(line.removesuffix(b"\r"), None)

    def finish(self) -> None:
        """Do nothing."""


class JsonLines:
    """Each line is JSON and becomes the value unchanged; blank lines are skipped.

    Args:
        key: a field of the object, or else a path of fields with dots between;
            a string is used without quotes, a number or bool as written, null means no key.
    """

    is_open = needs_header = False

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._is_first = True
        self._decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).decode

    def read(self, line: bytes) -> Content | None:
        """Check the line, and find its key."""
        text = _text(line, is_first=self._is_first).removesuffix("\r")
        self._is_first = False
        if not text or text.isspace():
            return None
        try:
            decoded: Json = self._decode(text)
        except RecursionError:
            raise BadLineError("not JSON that can be read", "nested too deeply") from None
        except json.JSONDecodeError as error:
            raise BadLineError("not JSON", f"{error.msg} at character {error.colno}") from None
        return Content(text.encode(), None if self._key is None else _json_key(decoded, self._key))

    def finish(self) -> None:
        """Do nothing."""


class CsvRows:
    """The first row names the fields; each other row becomes a JSON object of strings. Blank lines are skipped.

    Quoted fields may contain line ends: until such a row ends, the format `is_open`. An empty cell means no key.

    Args:
        max_record_bytes: the longest row; otherwise an open quote would read the whole file.
    """

    def __init__(self, key: str | None, max_record_bytes: int) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), max_record_bytes))
        self._key = key
        self._key_index: int | None = None
        self._template = ""  # the JSON object with a %s for each cell: three times as fast as encoding a dict
        self._max_record_bytes = max_record_bytes
        self._fields: Sequence[str] = ()
        self._lines: list[str] = []
        self._size_bytes = 0
        self._unreadable: BadLineError | None = None
        self._is_first = True

    @property
    def is_open(self) -> bool:
        """Whether a quoted field continues in the next line."""
        return bool(self._lines)

    @property
    def needs_header(self) -> bool:
        return not self._fields

    def read(self, line: bytes) -> Content | None:
        """Return the record of the row that ends with this line, or None."""
        row = self._row_that_ends_with(line)
        if not row:
            return None
        if not self._fields:
            self._use_header(row)
            return None
        return self._content(row)

    def _row_that_ends_with(self, line: bytes) -> Sequence[str]:
        text = self._decode(line)
        self._is_first = False
        try:
            row = self._go_on(text, len(line)) if self._lines else self._begin(text, len(line))
        except BadLineError as error:
            raise self._unreadable or error from None
        if self._unreadable is not None and not self._lines:
            raise self._unreadable
        return row

    def _decode(self, line: bytes) -> str:
        """Return the line as text; one that is not UTF-8 makes its row invalid, whose end the quotes still show."""
        if not self._lines:
            self._unreadable = None
        try:
            return _text(line, is_first=self._is_first, number=len(self._lines) + 1)
        except BadLineError as error:
            self._unreadable = self._unreadable or error
            return line.decode(errors="replace")

    def finish(self) -> None:
        if self._lines:
            self._refuse_open_quote()

    def _begin(self, text: str, size_bytes: int) -> Sequence[str]:
        try:
            return _row(text.removesuffix("\r"))
        except csv.Error as error:
            if str(error) != OPEN_QUOTE:
                raise _not_csv(error) from None
        self._lines, self._size_bytes = [text], size_bytes
        return ()

    def _go_on(self, text: str, size_bytes: int) -> Sequence[str]:
        self._lines.append(text)
        self._size_bytes += size_bytes + 1
        if self._size_bytes > self._max_record_bytes:
            self._refuse_open_quote()
        if _ends_in_quotes('"' + text):
            return ()
        row, self._lines = "\n".join(self._lines).removesuffix("\r"), []
        try:
            return _row(row)
        except csv.Error as error:
            raise _not_csv(error) from None

    def _refuse_open_quote(self) -> NoReturn:
        self._lines.clear()
        raise BadLineError("a quoted field begins here and does not end")

    def _use_header(self, fields: Sequence[str]) -> None:
        twice = {field for field in fields if fields.count(field) > 1}
        if twice:
            raise BadLineError("the header names a field twice", repr(min(twice)))
        if self._key is not None:
            self._key_index = _key_index(fields, self._key)
        self._fields = fields
        names = (encode_basestring(field).replace("%", "%%") for field in fields)
        self._template = f"{{{','.join(f'{name}:%s' for name in names)}}}"

    def _content(self, row: Sequence[str]) -> Content:
        if len(row) != len(self._fields):
            raise BadLineError("wrong number of fields", f"{len(row)}, expected {len(self._fields)}")
        value = (self._template % tuple(map(encode_basestring, row))).encode()
        return Content(value, None if self._key_index is None else row[self._key_index].encode() or None)


LineFormat: TypeAlias = PlainLines | JsonLines | CsvRows


def _row(text: str) -> Sequence[str]:
    return next(csv.reader([text], strict=True), ())


def _not_csv(error: csv.Error) -> BadLineError:
    text = str(error)
    if text.startswith(LONE_CR):  # goes on with advice for programs
        text = "a CR that is neither in quotes nor before LF; where lines end with CR alone: tr '\\r' '\\n'"
    return BadLineError("not CSV", text)


def _ends_in_quotes(text: str) -> bool:
    """Return whether a row that begins with this text continues in the next line."""
    try:
        _row(text)
    except csv.Error as error:
        return str(error) == OPEN_QUOTE
    return False


def _key_index(fields: Sequence[str], key: str) -> int:
    if key in fields:
        return fields.index(key)
    nearest = get_close_matches(key, fields, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise NoKeyFieldError("--key: no such field", f"{key!r} is not among {', '.join(fields)}{hint}")


def _text(line: bytes, *, is_first: bool, number: int = 1) -> str:
    """Return a line as text, without a byte order mark at the beginning of the input."""
    if is_first and line.startswith(UTF16_MARKS):
        raise BadLineError("not UTF-8", "it looks like UTF-16; to convert it: iconv -f utf-16 -t utf-8")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        where = f"position {error.start + 1}" + (f" of its line {number}" if number > 1 else "")
        raise BadLineError("not UTF-8", f"byte 0x{line[error.start]:02x} at {where}") from None
    return text.removeprefix(UTF8_MARK) if is_first else text


def _json_key(decoded: Json, field: str) -> bytes | None:
    found = _lookup(decoded, field)
    if found is None:
        return None
    if isinstance(found, bool):
        return b"true" if found else b"false"
    if not isinstance(found, str):
        what = "an object" if isinstance(found, Mapping) else "an array"
        raise BadLineError("the key field is no text, number or bool", f"{field!r} is {what}")
    try:
        return found.encode()
    except UnicodeEncodeError:
        raise BadLineError("the key field is no valid Unicode", repr(field)) from None


def _lookup(decoded: Json, field: str) -> Json:
    """Return the field with that name, or at that path."""
    if not isinstance(decoded, Mapping):
        raise BadLineError("not a JSON object, so it has no key field")
    if field in decoded:
        return decoded[field]
    found: Json = decoded
    for name in field.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise BadLineError("no key field", repr(field))
        found = found[name]
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise BadLineError("not JSON", f"{name} is no JSON number")
