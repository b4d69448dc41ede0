"""Base of the serializers of all three formats: the id, asked for once, and the frame around the payload."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from struct import pack
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeAlias, TypeVar, Unpack, cast

from aioproducer._shown_values import in_any_state, shown
from aioproducer.integrations.schema_registry._registry import (
    ConfluentRegistry,
    Schema,
    SchemaId,
    SchemaKind,
    SchemaOptions,
    SchemaRegistry,
    SchemaRegistryError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

    from aioproducer.config import ProducerConfig
    from aioproducer.integrations.schema_registry._registry import RegistryArgument

ValueT = TypeVar("ValueT")
MadeT = TypeVar("MadeT")
Headers: TypeAlias = list[tuple[str, bytes | None]]
Encode: TypeAlias = Callable[[ValueT], bytes]

_BY_NUMBER: Final = 0
"""First byte of a frame: the id's four bytes follow."""
_BY_GUID: Final = 1
"""The same: the 16 bytes of a globally unique id follow."""
_MAX_ID: Final = 2**32 - 1
_STRATEGIES: Final = ("topic", "record", "topic_record")


class Frame:
    """The bytes that say which schema a payload has; before the payload, or in a header.

    Args:
        schema_id: of the schema.
        after: bytes behind the id: Protobuf's path of the message within its file.

    Raises:
        ValueError: an id or guid that does not fit.
    """

    def __init__(self, schema_id: SchemaId, after: bytes = b"") -> None:
        number, guid = schema_id
        if not (isinstance(number, int) and 0 <= number <= _MAX_ID):
            raise ValueError(f"the registry's id {shown(number)} does not fit into the four bytes of a record")
        self.prefix: Final = pack(">bI", _BY_NUMBER, number) + after
        try:
            self.header: Final = self.prefix if guid is None else bytes([_BY_GUID]) + uuid.UUID(guid).bytes + after
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"the registry's guid {shown(guid)} is not a UUID") from error


class RegistrySerializer(ABC, Generic[ValueT]):
    """Base class of the serializers.

    Args:
        kind: of the schemas.
        schema: None is only for `use_latest_version`.
        registry: as `RegistryArgument`.
        record_name: name of the schema's type, for subjects; None if it has none.
        **options: `SchemaOptions`.

    Raises:
        TypeError: an argument of another type, or an unknown option.
        ValueError: a strategy that is not known, or that needs a name.
    """

    _reads_registered: ClassVar[bool] = False
    """Whether encoding needs the schema as the registry has it under its id, also if it was given."""

    def __init__(
        self,
        kind: SchemaKind,
        schema: Schema | None,
        registry: RegistryArgument,
        *,
        record_name: str | None,
        **options: Unpack[SchemaOptions],
    ) -> None:
        unknown = set(options) - set(SchemaOptions.__annotations__)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        for name in ("auto_register", "use_latest_version", "normalize", "id_in_header", "is_key"):
            check_bool(name, options.get(name, False))
        self._kind = kind
        self._schema = schema
        self._owned, self._registry = _client_of(registry)
        self._record_name = record_name
        self._options = options
        self._is_key = options.get("is_key", False)
        self._is_configured = False
        self._uses_latest = options.get("use_latest_version", False)
        self.accepts_headers: bool = options.get("id_in_header", False)
        """Whether the producer passes the headers of records."""
        _check_strategy(options.get("subject", "topic"), record_name)
        if schema is None and not self._uses_latest:
            raise ValueError("schema may be None only with use_latest_version=True")
        self._encoders: dict[str, Callable[[ValueT, Headers | None], bytes]] = {}
        self._asking: SharedCalls[Callable[[ValueT, Headers | None], bytes]] = SharedCalls()

    # As a serializer

    def configure(self, _config: ProducerConfig, is_key: bool, /) -> None:  # noqa: FBT001  # Kafka's signature
        """Note whether keys or values are encoded.

        Raises:
            ValueError: it was told the other before: their subjects differ, so each needs a serializer of its own.
        """
        if self._is_configured and is_key != self._is_key:
            raise ValueError("a serializer encodes either keys or values: make one for each")
        self._is_configured, self._is_key = True, is_key

    def serialize(
        self, topic: str, value: ValueT, headers: Headers | None = None, /
    ) -> bytes | Awaitable[bytes | None]:
        """Return the framed bytes; for the first record of a topic, an awaitable of them.

        Raises:
            ValueError, TypeError: the value does not fit the schema; names the field.
        """
        encode = self._encoders.get(topic)
        if encode is None:
            return self._first(topic, value, headers)
        return encode(value, headers)

    async def prepare(self, *topics: str) -> None:
        """Ask for the schemas of topics now, so that `send` and `send_nowait` take their records.

        Raises:
            SchemaRegistryError: the registry refused a schema, or is unreachable.
        """
        for topic in topics:
            if topic not in self._encoders:
                self._encoders[topic] = await self._asking.get(topic, partial(self._ask, topic))

    async def close(self) -> None:
        """Close the client of the registry, if it was made here."""
        if self._owned is not None:
            await self._owned.close()

    async def _first(self, topic: str, value: ValueT, headers: Headers | None) -> bytes:
        await self.prepare(topic)
        return self._encoders[topic](value, headers)

    # Inside

    async def _ask(self, topic: str) -> Callable[[ValueT, Headers | None], bytes]:
        subject, schema = self._subject_of(topic), None if self._uses_latest else self._schema
        schema_id = await self._registry.schema_id(
            subject,
            schema,
            register=self._options.get("auto_register", True),
            normalize=self._options.get("normalize", False),
        )
        if schema is None or self._reads_registered:
            schema = await self._registered(subject, schema_id.number) or schema
        if schema is None:
            raise SchemaRegistryError(f"the registry does not return schema {schema_id.number} of subject {subject!r}")
        try:
            return self._framed(Frame(schema_id, self._after_id(schema)), schema)
        except (SchemaRegistryError, ValueError) as error:
            text = f"subject {subject!r}, schema {schema_id.number}: {error}"
            raise SchemaRegistryError(text) from error

    async def _registered(self, subject: str, number: int) -> Schema | None:
        found = await self._registry.schema(number)
        if found is not None and found.kind != self._kind:
            which = "latest " if self._uses_latest else ""
            raise SchemaRegistryError(f"the {which}schema of subject {subject!r} is {found.kind}, not {self._kind}")
        return found

    def _subject_of(self, topic: str) -> str:
        strategy, name = self._options.get("subject", "topic"), self._record_name or ""
        if callable(strategy):
            return strategy(topic, name, self._is_key)
        if strategy == "topic":
            return f"{topic}-{'key' if self._is_key else 'value'}"
        return name if strategy == "record" else f"{topic}-{name}"

    def _framed(self, frame: Frame, schema: Schema) -> Callable[[ValueT, Headers | None], bytes]:
        if not self.accepts_headers:
            encode_behind = self._encoder(schema, frame.prefix)
            return lambda value, _headers: encode_behind(value)
        encode, name = self._encoder(schema, b""), f"__{'key' if self._is_key else 'value'}_schema_id"

        def with_header(value: ValueT, headers: Headers | None) -> bytes:
            payload = encode(value)
            if headers is not None:
                headers.append((name, frame.header))
            return payload

        return with_header

    def _after_id(self, _schema: Schema) -> bytes:
        """Return the bytes between the id of a schema and the payload."""
        return b""

    @abstractmethod
    def _encoder(self, schema: Schema, prefix: bytes) -> Encode[ValueT]:
        """Return a function that encodes a value by a schema, behind a prefix.

        Raises:
            ValueError: the schema is not valid.
        """

    @in_any_state
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._record_name or ''} for {'keys' if self._is_key else 'values'}>"


class SharedCalls(Generic[MadeT]):
    """Calls that several callers await: one at a time for each key. A failure is not remembered."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[asyncio.Task[MadeT], list[object]]] = {}

    async def get(self, key: str, call: Callable[[], Coroutine[object, None, MadeT]]) -> MadeT:
        """Await the call for a key; it is cancelled once no one waits for it any more."""
        found = self._calls.get(key)
        if found is None or found[0].done() or found[0].get_loop() is not asyncio.get_running_loop():
            found = self._calls[key] = (asyncio.ensure_future(call()), [])
        task, waiters = found
        waiters.append(None)
        try:
            return await asyncio.shield(task)
        finally:
            waiters.pop()
            if not waiters:
                task.cancel()
                if self._calls.get(key) is found:
                    del self._calls[key]


def _client_of(registry: RegistryArgument) -> tuple[ConfluentRegistry | None, SchemaRegistry]:
    """Return the client that was made here, if so, and the one to use."""
    if isinstance(registry, str | Mapping) or hasattr(registry, "register_schema_full_response"):
        made = ConfluentRegistry(cast("str | Mapping[str, object] | AsyncSchemaRegistryClient", registry))
        return made, made
    if not (hasattr(registry, "schema_id") and hasattr(registry, "schema")):
        raise TypeError(
            "registry must be a URL, a configuration or client of confluent-kafka's, or have schema_id and schema, "
            f"not {type(registry).__name__}"
        )
    return None, registry


def check_bool(name: str, value: object) -> None:
    """Raise a TypeError that names the argument, unless it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")


def check_to_dict(to_dict: object) -> None:
    """Raise a TypeError for a `to_dict` that cannot be called."""
    if to_dict is not None and not callable(to_dict):
        raise TypeError(f"to_dict must be a function or None, not {type(to_dict).__name__}")


def _check_strategy(strategy: object, record_name: str | None) -> None:
    if callable(strategy):
        return
    if strategy not in _STRATEGIES:
        raise ValueError(f"subject must be one of {', '.join(_STRATEGIES)}, or a function, not {strategy!r}")
    if strategy != "topic" and not record_name:
        raise ValueError(f"subject={strategy!r} needs a schema whose type has a name")


def schema_of(argument: object, kind: SchemaKind) -> Schema | None:
    """Return the schema that was given as text, as a `Schema`, or not at all.

    Raises:
        TypeError: neither.
        ValueError: a `Schema` of another kind.
    """
    if isinstance(argument, str):
        return Schema(argument, kind)
    if argument is not None and not isinstance(argument, Schema):
        raise TypeError(f"schema must be text or a Schema, not {type(argument).__name__}")
    if argument is not None and argument.kind != kind:
        raise ValueError(f"schema must be {kind}, not {argument.kind}")
    return argument
