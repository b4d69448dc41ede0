"""Protobuf.

Source: io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, Unpack

from aioproducer.integrations.schema_registry._protobuf_messages import message_indexes, message_names
from aioproducer.integrations.schema_registry._registry import (
    Schema,
    SchemaOptions,
    SchemaReference,
    SchemaRegistryError,
)
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


class _Descriptor(Protocol):
    full_name: str
    file: _File


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802  # Protobuf's name


MessageT = TypeVar("MessageT", bound=_Message)


class ProtobufSerializer(RegistrySerializer[MessageT]):
    """Encodes Protobuf messages.

    The message's indexes are those of the schema that the registry has under the id, which is asked for it: readers
    look them up there.
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

    _reads_registered = True

    @clears_frames
    def __init__(self, message: type[MessageT], registry: RegistryArgument, **options: Unpack[SchemaOptions]) -> None:
        descriptor: _Descriptor | None = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not isinstance(message, type):
            raise TypeError(f"message must be a class of Protobuf messages, not {type(message).__name__}")
        self._message = message
        self._descriptor = descriptor
        super().__init__("PROTOBUF", _schema_of(descriptor.file), registry, record_name=descriptor.full_name, **options)

    def _after_id(self, schema: Schema) -> bytes:
        return message_path(self._descriptor, schema)

    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[MessageT]:  # noqa: ARG002  # the class has its own
        kind = self._message

        def encode(message: MessageT) -> bytes:
            if not isinstance(message, kind):  # another message's bytes may decode as this one's
                raise TypeError(f"expected {kind.__name__}, not {type(message).__name__}")
            return prefix + message.SerializeToString()

        return encode


def message_path(descriptor: _Descriptor, schema: Schema | None = None) -> bytes:
    """Return the indexes of a message as they stand in a frame.

    Args:
        descriptor: of the message.
        schema: the one whose id stands before them; None is the message's own file.

    Raises:
        SchemaRegistryError: the schema has no such message.
    """
    schema = schema or _schema_of(descriptor.file)
    try:
        indexes = message_indexes(schema, descriptor.full_name)
    except ValueError as error:
        raise SchemaRegistryError(str(error)) from error
    if indexes is None:
        names = ", ".join(message_names(schema)) or "none"
        raise SchemaRegistryError(f"the schema has no message {descriptor.full_name}; its messages: {names}")
    return indexes


def _schema_of(file: _File) -> Schema:
    references = tuple(
        SchemaReference(imported.name, imported.name, _schema_of(imported))
        for imported in file.dependencies
        if not imported.name.startswith(_BUILT_IN)
    )
    return Schema(base64.standard_b64encode(file.serialized_pb).decode(), "PROTOBUF", references)
