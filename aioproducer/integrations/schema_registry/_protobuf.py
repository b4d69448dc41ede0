"""Protobuf.

Source: io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, Unpack

from aioproducer.integrations.schema_registry._registry import Schema, SchemaOptions, SchemaReference
from aioproducer.integrations.schema_registry._serializer import RegistrySerializer
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.integrations.schema_registry._registry import RegistryArgument
    from aioproducer.integrations.schema_registry._serializer import Encode

_BUILT_IN: Final = ("confluent/", "google/protobuf/", "google/type/")
"""Folders of files that every registry knows."""


class _File(Protocol):
    name: str
    serialized_pb: bytes
    dependencies: Sequence[_File]
    message_types_by_name: dict[str, object]


class _Descriptor(Protocol):
    name: str
    full_name: str
    file: _File
    containing_type: _Descriptor | None
    nested_types: Sequence[_Descriptor]


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802  # Protobuf's name


MessageT = TypeVar("MessageT", bound=_Message)


class ProtobufSerializer(RegistrySerializer[MessageT]):
    """Encodes Protobuf messages.

    The files that the message's file imports are registered too, each under its own name, except those that come with
    Protobuf.

    Args:
        message: class of the messages, as `protoc` makes it.
        registry: as that of `AvroSerializer`.
        **options: `SchemaOptions`.

    Raises:
        ModuleNotFoundError: the extra `registry` is not installed.
        TypeError, ValueError: an argument.
    """

    @clears_frames
    def __init__(self, message: type[MessageT], registry: RegistryArgument, **options: Unpack[SchemaOptions]) -> None:
        descriptor: _Descriptor | None = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not isinstance(message, type):
            raise TypeError(f"message must be a class of Protobuf messages, not {type(message).__name__}")
        self._message = message
        self._path = message_path(descriptor)
        super().__init__("PROTOBUF", _schema_of(descriptor.file), registry, record_name=descriptor.full_name, **options)

    def _after_id(self) -> bytes:
        return self._path

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[MessageT]:  # noqa: ARG002  # the class has its own
        kind = self._message

        def encode(message: MessageT) -> bytes:
            if not isinstance(message, kind):  # another message's bytes may decode as this one's
                raise TypeError(f"expected {kind.__name__}, not {type(message).__name__}")
            return prefix + message.SerializeToString()

        return encode


def message_path(descriptor: _Descriptor) -> bytes:
    """Return the indexes of a message within its file, as they stand in a frame."""
    indexes: list[int] = []
    while descriptor.containing_type is not None:
        outer = descriptor.containing_type
        indexes.insert(0, [nested.full_name for nested in outer.nested_types].index(descriptor.full_name))
        descriptor = outer
    indexes.insert(0, list(descriptor.file.message_types_by_name).index(descriptor.name))
    if indexes == [0]:
        return b"\0"  # short for the most frequent one
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    """Return a varint of a number that is not negative."""
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # seven bits in each byte
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _schema_of(file: _File) -> Schema:
    references = tuple(
        SchemaReference(imported.name, imported.name, _schema_of(imported))
        for imported in file.dependencies
        if not imported.name.startswith(_BUILT_IN)
    )
    return Schema(base64.standard_b64encode(file.serialized_pb).decode(), "PROTOBUF", references)
