"""Base of the serializers of all three formats: the id, asked for once, and the frame around the payload."""

from __future__ import annotations

import asyncio
import inspect
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
_EncodeRecord: TypeAlias = Callable[[ValueT, Headers | None], bytes]
_Encoders: TypeAlias = dict[str, _EncodeRecord[ValueT]]
"""By topic."""

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
        self._is_key_given = "is_key" in options
        self._is_configured = False
        self._uses_latest = options.get("use_latest_version", False)
        self.accepts_headers: bool = options.get("id_in_header", False)
        """Whether the producer passes the headers of records."""
        _check_strategy(options.get("subject", "topic"), record_name)
        if schema is None and not self._uses_latest:
            raise ValueError("schema may be None only with use_latest_version=True")
        self._encoders_of: tuple[_Encoders[ValueT], _Encoders[ValueT]] = ({}, {})
        """Those of values and of keys: their subjects differ, and it may be said late which of them are encoded."""
        self._encoders = self._encoders_of[self._is_key]
        self._asking: SharedCalls[_EncodeRecord[ValueT]] = SharedCalls()

    # As a serializer

    def configure(self, _config: ProducerConfig, is_key: bool, /) -> None:  # noqa: FBT001  # Kafka's signature
        """Note whether keys or values are encoded.

        Raises:
            ValueError: it was told the other before, or given as `is_key`: their subjects differ, so each needs a
                serializer of its own.
        """
        self._set_role(is_key)
        self._is_configured = True

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

    async def prepare(self, *topics: str, is_key: bool | None = None) -> None:
        """Ask for the schemas of topics now, so that `send` and `send_nowait` take their records.

        Args:
            *topics: names of the topics.
            is_key: whether keys are encoded, for a call before a producer has said so; as the option of that name.

        Raises:
            SchemaRegistryError: the registry refused a schema, or is unreachable.
            TypeError: `is_key` is neither a bool nor None, or `subject` is a function that returned no text.
            ValueError: `is_key` is not what was said before.
        """
        if is_key is not None:
            check_bool("is_key", is_key)
            self._set_role(is_key)
            self._is_key_given = True
        of_keys = self._is_key
        for topic in topics:
            await self._encoder_of(topic, is_key=of_keys)

    async def close(self) -> None:
        """Close the connections of this event loop to the registry, if they were made here."""
        if self._owned is not None:
            await self._owned.close()

    async def _first(self, topic: str, value: ValueT, headers: Headers | None) -> bytes:
        encode = await self._encoder_of(topic, is_key=self._is_key)
        return encode(value, headers)

    # Inside

    def _set_role(self, is_key: bool) -> None:  # noqa: FBT001  # the one argument
        if is_key != self._is_key and self._is_configured:
            text = "a serializer encodes either keys or values: make one for each"
            raise ValueError(f"{text} (is_key is {self._is_key} for this one)")
        if is_key != self._is_key and self._is_key_given:
            used = "keys" if is_key else "values"
            raise ValueError(f"is_key is {self._is_key}, but {used} are encoded: it must be {is_key}, or left out")
        self._is_key, self._encoders = is_key, self._encoders_of[is_key]

    async def _encoder_of(self, topic: str, *, is_key: bool) -> _EncodeRecord[ValueT]:
        encoders = self._encoders_of[is_key]
        if topic not in encoders:
            ask = partial(self._ask, topic, is_key=is_key)
            encoders[topic] = await self._asking.get((topic, is_key), ask)
        return encoders[topic]

    async def _ask(self, topic: str, *, is_key: bool) -> _EncodeRecord[ValueT]:
        subject, schema = self._subject_of(topic, is_key=is_key), None if self._uses_latest else self._schema
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
            return self._framed(Frame(schema_id, self._after_id(schema)), schema, is_key=is_key)
        except (SchemaRegistryError, ValueError) as error:
            text = f"subject {subject!r}, schema {schema_id.number}: {error}"
            raise SchemaRegistryError(text) from error

    async def _registered(self, subject: str, number: int) -> Schema | None:
        found = await self._registry.schema(number)
        if found is not None and found.kind != self._kind:
            which = "latest " if self._uses_latest else ""
            raise SchemaRegistryError(f"the {which}schema of subject {subject!r} is {found.kind}, not {self._kind}")
        return found

    def _subject_of(self, topic: str, *, is_key: bool) -> str:
        strategy, name = self._options.get("subject", "topic"), self._record_name or ""
        if callable(strategy):
            return _checked_subject(strategy(topic, name, is_key))
        if strategy == "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        return name if strategy == "record" else f"{topic}-{name}"

    def _framed(self, frame: Frame, schema: Schema, *, is_key: bool) -> _EncodeRecord[ValueT]:
        if not self.accepts_headers:
            encode_behind = self._encoder(schema, frame.prefix)
            return lambda value, _headers: encode_behind(value)
        encode, name = self._encoder(schema, b""), f"__{'key' if is_key else 'value'}_schema_id"

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
    """Calls that several callers await: one at a time for each key and event loop. A failure is not remembered."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[asyncio.Task[MadeT], list[object]]] = {}

    async def get(self, of: object, call: Callable[[], Coroutine[object, None, MadeT]]) -> MadeT:
        """Await the call for a key; it is cancelled once no one waits for it any more."""
        key = (asyncio.get_running_loop(), of)  # the loops of other threads call too, and cannot await this one's
        found = self._calls.get(key)
        if found is None or found[0].done():
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
    """Raise a TypeError for a `to_dict` that cannot be called, or is async."""
    if to_dict is not None and not callable(to_dict):
        raise TypeError(f"to_dict must be a function or None, not {type(to_dict).__name__}")
    if inspect.iscoroutinefunction(to_dict):
        raise TypeError(_is_async("to_dict"))


def refuse_coroutine(name: str, result: object) -> None:
    """Close a coroutine that the user's function has returned, and raise a TypeError that names the argument."""
    if inspect.iscoroutine(result):
        result.close()  # or Python warns that it was never awaited
        raise TypeError(_is_async(name))


def _is_async(name: str) -> str:
    return f"{name} must not be async: it is not awaited"


def _checked_subject(result: object) -> str:
    refuse_coroutine("subject", result)
    if not isinstance(result, str) or not result:
        raise TypeError(f"subject must return the name of a subject as text: it returned {shown(result)}")
    return result


def _check_strategy(strategy: object, record_name: str | None) -> None:
    if inspect.iscoroutinefunction(strategy):
        raise TypeError(_is_async("subject"))
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
