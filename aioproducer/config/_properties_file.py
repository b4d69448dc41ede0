"""Reads Java property files, the form of Kafka's own configuration files.

Source: java.util.Properties.load, through which Kafka's tools read them (Utils.loadProps).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from aioproducer.errors import ConfigurationError

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BACKSLASHES_AT_END: Final = re.compile(r"\\*\Z")
_KEY_AND_VALUE: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_BLANKS: Final = " \t\f"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A property, and the line on which it begins, counted from 1."""

    value: str
    line: int
    is_utf8: bool = False
    """Whether it has characters of UTF-8 as they are, which Java takes for others."""

    def __repr__(self) -> str:
        return f"Property(<hidden>, line {self.line})"


def read_properties(path: str | PathLike[str]) -> dict[str, Property]:
    """Return the file's properties by name; of a name given twice the last one, as in Java.

    Args:
        path: a file in UTF-8, or else in ISO-8859-1.

    Raises:
        ConfigurationError: an escape that Java refuses; says in which line. Or the file is UTF-16.
        OSError: the file cannot be read.
    """
    result = {}
    found = Path(path).read_bytes()
    if found.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigurationError(f"{path} is UTF-16, and must be UTF-8: convert it, for example in an editor")
    content, is_utf8 = _decoded(found)
    for line, text in _logical_lines(content):
        match = _KEY_AND_VALUE.fullmatch(text)
        assert match is not None  # a backslash always has a character after it
        try:
            result[_unescaped(match[1])] = Property(_unescaped(match[2]), line, is_utf8 and not text.isascii())
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {line}: {error}") from None
    return result


def _decoded(content: bytes) -> tuple[str, bool]:
    """Return the text, and whether it is UTF-8."""
    try:
        return content.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        return content.decode("latin-1"), False


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is neither blank nor a comment, joined with its continuation lines."""
    joined, begun_at = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        part = natural.lstrip(_BLANKS)
        if not joined:
            begun_at = number
            if not part or part[0] in "#!":
                continue
        joined += part
        backslashes = _BACKSLASHES_AT_END.search(part)
        if backslashes is not None and len(backslashes[0]) % 2:
            joined = joined[:-1]
            continue
        yield begun_at, joined
        joined = ""
    if joined:
        yield begun_at, joined


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    # An escaped pair of surrogates is one character, as in Java.
    return _ESCAPE.sub(_character, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    if escape[2] == "u":
        raise ValueError("\\u must be followed by four hexadecimal digits")
    return _CONTROLS.get(escape[2], escape[2])
