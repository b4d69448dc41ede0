"""Schemas, and what the serializers need of a client of a schema registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypedDict

SchemaKind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]

SubjectStrategy: TypeAlias = Literal["topic", "record", "topic_record"] | Callable[[str, str, bool], str]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses."""

    name: str
    """As the other schema names it: the full name of an Avro type, the `$ref` of a JSON Schema, or the file of an
    import."""
    subject: str
    """Subject under which it is registered."""
    schema: Schema
    """The schema itself: values are encoded by it too."""
    version: int | None = None
    """Version of the subject; None registers the schema, or looks its version up."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, as a registry keeps it."""

    text: str
    """JSON of an Avro or JSON Schema; of Protobuf, the `FileDescriptorProto` in base64."""
    kind: SchemaKind
    """`AVRO`, `JSON` or `PROTOBUF`."""
    references: tuple[SchemaReference, ...] = ()
    """Schemas that it uses."""


class SchemaId(NamedTuple):
    """The answer of a registry."""

    number: int
    """The schema's id."""
    guid: str | None = None
    """Its globally unique id, which newer registries give; for headers."""


class SchemaRegistryError(Exception):
    """A registry refused a schema, or did not answer as one. `SerializationError` has it as its cause."""


class SchemaRegistry(Protocol):
    """A client of a schema registry. The serializers do not close it."""

    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        """Return the id of a schema under a subject.

        Args:
            subject: name of the subject.
            schema: the schema; None is the latest one of the subject.
            register: register the schema if the subject does not have it.
            normalize: let the registry normalize the schema first.

        Raises:
            SchemaRegistryError: the registry refused it, or is unreachable.
        """
        ...

    async def schema(self, schema_id: int) -> Schema:
        """Return a schema, with its references.

        Raises:
            SchemaRegistryError: there is no such schema, or the registry is unreachable.
        """
        ...


class ConfluentClient(Protocol):
    """An `AsyncSchemaRegistryClient` of confluent-kafka's, which is recognized by this method."""

    @property
    def register_schema_full_response(self) -> object:
        """Registers a schema."""
        ...


RegistryArgument: TypeAlias = str | Mapping[str, object] | ConfluentClient | SchemaRegistry
"""A URL, a configuration of confluent-kafka's client, such a client, or a client of your own."""


class SchemaOptions(TypedDict, total=False):
    """Options of the serializers; the defaults are those of Java's."""

    subject: SubjectStrategy
    """`topic` (the default) is `<topic>-key` or `<topic>-value`, `record` the name of the record's type,
    `topic_record` both with a `-` between; or a function of topic, name of the type and is_key."""
    auto_register: bool
    """Register the schema if the subject does not have it; else it must be there. Default: True."""
    use_latest_version: bool
    """Encode by the latest schema of the subject, whichever was given; asked for once. Default: False."""
    normalize: bool
    """Let the registry normalize the schema, so that equal ones are found in any layout. Default: False."""
    id_in_header: bool
    """Put the id into the header `__value_schema_id` or `__key_schema_id`, instead of before the payload. Default:
    False."""
    is_key: bool
    """Whether keys are encoded. The producer says so; for a use without one. Default: False."""
