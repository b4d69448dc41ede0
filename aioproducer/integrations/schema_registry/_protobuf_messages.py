"""Messages of a Protobuf schema, and the indexes by which a frame names one: by the schema that readers get."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioproducer.integrations.schema_registry._registry import Schema

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*")
"""A `FileDescriptorProto`; the text of a file has other characters, at least a `;` or `{`."""
_TOKEN: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | [\w.]+ | \S""", re.DOTALL | re.VERBOSE
)
_MODIFIERS: Final = frozenset({"export", "local"})


class MessageOutline(NamedTuple):
    """A message's name, and those of the messages within it, in the order of the file."""

    name: str
    nested: list[MessageOutline]


class FileOutline(NamedTuple):
    """The messages of a file."""

    package: str
    messages: list[MessageOutline]


class _DescriptorProto(Protocol):
    name: str

    @property
    def nested_type(self) -> Iterable[_DescriptorProto]: ...


def message_indexes(schema: Schema, full_name: str) -> bytes | None:
    """Return the indexes of a message as they stand in a frame; None if the schema has no such message.

    Source: io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema.toMessageIndexes, MessageIndexes.
    """
    file = outline_of(schema)
    prefix = f"{file.package}." if file.package else ""
    if not full_name.startswith(prefix):
        return None
    indexes, messages = [], file.messages
    for part in full_name.removeprefix(prefix).split("."):
        index = next((index for index, message in enumerate(messages) if message.name == part), None)
        if index is None:
            return None
        indexes.append(index)
        messages = messages[index].nested
    if indexes == [0]:
        return b"\0"  # short for the most frequent one
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def message_names(schema: Schema) -> list[str]:
    """Return the full names of the messages that are not within others."""
    file = outline_of(schema)
    return [f"{file.package}.{message.name}".removeprefix(".") for message in file.messages]


def outline_of(schema: Schema) -> FileOutline:
    """Return the messages of a schema, which a registry gives as text or as a `FileDescriptorProto` in base64.

    Raises:
        ValueError: neither.
    """
    if _BASE64.fullmatch(schema.text) is None:
        return _outline_of_text(schema.text)
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415  # optional
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        file = FileDescriptorProto.FromString(base64.standard_b64decode(schema.text))
    except (DecodeError, binascii.Error) as error:
        raise ValueError(f"schema: not a valid Protobuf schema: {error}") from error
    return FileOutline(file.package, _outlines(file.message_type))


def _outlines(messages: Iterable[_DescriptorProto]) -> list[MessageOutline]:
    return [MessageOutline(message.name, _outlines(message.nested_type)) for message in messages]


def _outline_of_text(text: str) -> FileOutline:
    """Read the messages alone. A `map` field has no message of its own here, which it has in a descriptor."""
    package, top = "", MessageOutline("", [])
    blocks: list[MessageOutline | None] = [top]  # None for those that are no messages: enums, services, values
    statement: list[str] = []
    for part in _tokens(text):
        if part == "{":
            message = MessageOutline(statement[-1], []) if _begins_message(statement) else None
            outer = blocks[-1]
            if message is not None and outer is not None:
                outer.nested.append(message)
            blocks.append(message)
        elif part == "}" and len(blocks) > 1:
            blocks.pop()
        elif part == ";" and len(blocks) == 1 and statement[:1] == ["package"]:
            package = "".join(statement[1:])
        if part in {"{", "}", ";"}:
            statement = []
        else:
            statement.append(part)
    return FileOutline(package, top.nested)


def _begins_message(statement: Sequence[str]) -> bool:
    words = statement[1:] if statement[:1] and statement[0] in _MODIFIERS else statement
    return len(words) == 2 and words[0] == "message"  # noqa: PLR2004  # and its name


def _tokens(text: str) -> Iterator[str]:
    for found in _TOKEN.finditer(text):
        if not found[0].startswith(("//", "/*")):
            yield found[0]


def _zigzag(number: int) -> bytes:
    """Return a varint of a number that is not negative."""
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # seven bits in each byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
