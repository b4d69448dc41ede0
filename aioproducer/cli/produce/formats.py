"""Makes key and value of a record from a line of input."""

import csv
import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from json.encoder import encode_basestring
from typing import Final, NamedTuple, NoReturn, Protocol, TypeAlias

UTF8_MARK: Final = "\ufeff"
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
OPEN_QUOTE: Final = "unexpected end of data"  # the message of `csv` in strict mode for a text that ends within quotes

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


class LineFormat(Protocol):
    """Reads the lines of one input."""

    @property
    def is_open(self) -> bool:
        """Whether the record of the last line continues in the next."""

    @property
    def needs_header(self) -> bool:
        """Whether the header is still to come."""

    def read(self, line: bytes) -> Content | None:
        """Return the record that ends with this line, or None."""

    def finish(self) -> None:
        """Note the end of the input."""


def line_format(kind: Format, *, key: str | None, max_record_bytes: int) -> LineFormat:
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

    Quoted fields may contain line ends. An empty cell means no key.

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
        """Return the object of the row that ends here."""
        row = self._row_that_ends_with(line)
        if not row:
            return None
        if not self._fields:
            self._take_header(row)
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
                raise BadLineError("not CSV", str(error)) from None
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
            raise BadLineError("not CSV", str(error)) from None

    def _refuse_open_quote(self) -> NoReturn:
        self._lines.clear()
        raise BadLineError("a quoted field begins here and does not end")

    def _take_header(self, fields: Sequence[str]) -> None:
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


def _row(text: str) -> Sequence[str]:
    return next(csv.reader([text], strict=True), ())


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
