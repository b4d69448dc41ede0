"""Schemas, the registry that keeps them, as the serializers need it, and confluent-kafka's client of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, cast
from urllib.parse import unquote, urlsplit

from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer._threads.calls import without_frames
from aioproducer.integrations._extras import check_installed
from aioproducer.security._cleared_frames import clears_frames

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
    from confluent_kafka.schema_registry import Schema as TheirSchema

ResultT = TypeVar("ResultT")

_NEED: Final = "a schema registry needs confluent-kafka's client"
_SHOWN_CHARACTERS: Final = 300
"""Limit of an error's text: a proxy may answer with a whole page."""

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
    """The response of a registry."""

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

    async def schema(self, schema_id: int) -> Schema | None:
        """Return a schema, with its references; asked for with `use_latest_version`, and for Protobuf.

        None is for a registry that keeps no schemas: the schema is the one that was given to the serializer.

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


class ConfluentRegistry:
    """A schema registry, asked by confluent-kafka's `AsyncSchemaRegistryClient`.

    May be shared by serializers. Reads its certificates when it is made; connects with the first request, on its loop.

    Args:
        registry: URLs, a configuration of `AsyncSchemaRegistryClient` such as `{"url": ...,
            "basic.auth.user.info": "user:password"}`, or such a client, which stays yours to close.

    Raises:
        ModuleNotFoundError: the extra `registry` is not installed.
        TypeError, ValueError: of another type, or a configuration that the client refuses.
    """

    @clears_frames
    def __init__(self, registry: str | Mapping[str, object] | AsyncSchemaRegistryClient) -> None:
        self._conf: Mapping[str, object] | None = None
        self._client: AsyncSchemaRegistryClient | None
        check_installed(_NEED, "registry", module="confluent_kafka.schema_registry")
        if isinstance(registry, str | Mapping):
            self._conf = {"url": registry} if isinstance(registry, str) else dict(registry)
            self._client = _made(self._conf)  # connects to nothing yet
        elif hasattr(registry, "register_schema_full_response"):
            self._client = registry
        else:
            raise TypeError(f"registry must be a URL, a mapping or a client, not {type(registry).__name__}")

    async def schema_id(self, subject: str, schema: Schema | None, *, register: bool, normalize: bool) -> SchemaId:
        """Return the id of a schema, as `SchemaRegistry.schema_id` says.

        Raises:
            SchemaRegistryError: the registry refused it, or is unreachable.
        """
        client = await self._open()
        what = f"subject {subject!r}"
        if schema is None:
            found = await _answer(client, what, client.get_latest_version(subject))
        else:
            theirs = await self._theirs(schema, register=register, normalize=normalize)
            if register:
                asked = client.register_schema_full_response(subject, theirs, normalize_schemas=normalize)
            else:
                asked = client.lookup_schema(subject, theirs, normalize_schemas=normalize)
            found = await _answer(client, what, asked)
        if not isinstance(found.schema_id, int):
            raise SchemaRegistryError(f"{what}: the answer has no id; is the URL that of a schema registry?")
        return SchemaId(found.schema_id, found.guid)

    async def schema(self, schema_id: int) -> Schema:
        """Return a schema, as `SchemaRegistry.schema` says.

        Raises:
            SchemaRegistryError: there is no such schema, or the registry is unreachable.
        """
        client = await self._open()
        return await self._ours(client, await _answer(client, f"schema {schema_id}", client.get_schema(schema_id)))

    async def close(self) -> None:
        """Close the connections, unless the client was given."""
        if self._conf is not None and self._client is not None:
            client, self._client = self._client, None
            await _close(client)

    async def _open(self) -> AsyncSchemaRegistryClient:
        if self._client is None:  # closed, and used again
            try:
                made = await asyncio.to_thread(_made, self._conf or {})  # reads certificates
            except ValueError as error:
                raise SchemaRegistryError(str(error)) from error
            await self._keep_first(made)
        assert self._client is not None
        return self._client

    async def _keep_first(self, made: AsyncSchemaRegistryClient) -> None:
        if self._client is None:
            self._client = made
        else:  # another call was faster
            await _close(made)

    async def _theirs(self, schema: Schema, *, register: bool, normalize: bool) -> TheirSchema:
        from confluent_kafka.schema_registry import Schema as TheirSchema  # noqa: PLC0415  # heavy, optional
        from confluent_kafka.schema_registry import SchemaReference as TheirReference  # noqa: PLC0415

        references = []
        for reference in schema.references:
            version = reference.version
            if version is None:
                version = await self._version(reference, register=register, normalize=normalize)
            references.append(TheirReference(reference.name, reference.subject, version))
        return TheirSchema(schema.text, schema.kind, references)

    async def _version(self, reference: SchemaReference, *, register: bool, normalize: bool) -> int:
        theirs = await self._theirs(reference.schema, register=register, normalize=normalize)
        client, subject = await self._open(), reference.subject
        what = f"subject {subject!r} of the reference {reference.name!r}"
        if register:
            asked = client.register_schema_full_response(subject, theirs, normalize_schemas=normalize)
            await _answer(client, what, asked)
        found = await _answer(client, what, client.lookup_schema(subject, theirs, normalize_schemas=normalize))
        if not isinstance(found.version, int):
            raise SchemaRegistryError(f"{what}: the answer has no version")
        return found.version

    async def _ours(self, client: AsyncSchemaRegistryClient, theirs: TheirSchema) -> Schema:
        references = []
        for reference in theirs.references or ():
            name, subject, version = reference.name or "", reference.subject or "", reference.version or 0
            what = f"version {version} of subject {subject!r}"
            found = await _answer(client, what, client.get_version(subject, version))
            references.append(SchemaReference(name, subject, await self._ours(client, found.schema), version))
        kind = cast("SchemaKind", theirs.schema_type or "AVRO")  # a registry leaves out the oldest one
        return Schema(theirs.schema_str or "", kind, tuple(references))

    def __repr__(self) -> str:
        return "<ConfluentRegistry>"  # a URL or a configuration may hold a password


def _made(conf: Mapping[str, object]) -> AsyncSchemaRegistryClient:
    """Return a client.

    Raises:
        TypeError, ValueError: the configuration is not valid.
    """
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient  # noqa: PLC0415  # heavy, optional

    urls = conf.get("url")
    if not isinstance(urls, str):
        raise TypeError(f"registry: url must be text, not {type(urls).__name__}")
    if not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
        raise ValueError("registry: url must be one or more URLs, http:// or https://, with commas between")
    try:
        return AsyncSchemaRegistryClient(dict(conf))
    except TypeError as error:
        raise TypeError(f"registry: {error}") from error
    except Exception as error:  # such as OSError: there is no such certificate
        raise ValueError(f"registry: {type(error).__name__}: {error}") from error


async def _answer(client: AsyncSchemaRegistryClient, what: str, asked: Awaitable[ResultT]) -> ResultT:
    """Await a response, and raise a `SchemaRegistryError` for each error of the client."""
    from confluent_kafka.schema_registry import SchemaRegistryError as TheirError  # noqa: PLC0415  # heavy, optional

    try:
        return await asked
    except TheirError as error:
        text = f"the registry answers HTTP {error.http_status_code}"
        if error.error_code not in {-1, None, error.http_status_code}:
            text += f", error {error.error_code}"
        failed = _failed(client, f"{what}: {text}: ", error, said=str(error.error_message))
    except json.JSONDecodeError as error:
        text = f"{what}: the answer is not JSON; is the URL that of a schema registry?"
        failed = _failed(client, text, error, said="")
    except Exception as error:  # noqa: BLE001  # of httpx, or of the user's function for a token
        failed = _failed(client, f"{what}: no answer of the registry: {type(error).__name__}: ", error, said=str(error))
    raise failed


def _failed(client: AsyncSchemaRegistryClient, text: str, error: Exception, *, said: str) -> SchemaRegistryError:
    """Return the error; that of the client is its cause, unless it quotes what was sent."""
    sent = _sent(client)
    failed = SchemaRegistryError(_short(text + sent.hidden(said)))
    quoted = f"{error}{getattr(error, 'doc', '')}"
    if sent.hidden(quoted) == quoted:
        failed.__cause__ = without_frames(error)  # which hold headers with credentials
    return failed


_CREDENTIALS: Final = ("token", "static_token", "client_secret")


def _sent(client: AsyncSchemaRegistryClient) -> SentSecrets:
    """Return the credentials that a client sends to the registry, or for its token."""
    sent = SentSecrets()
    rest = getattr(client, "_rest_client", None)
    for url in (*getattr(rest, "base_urls", ()), getattr(rest, "proxy", None)):
        parts = urlsplit(url if isinstance(url, str) else "")
        _add_pair(sent, unquote(parts.username or ""), unquote(parts.password or ""))
    basic = getattr(rest, "auth", None)
    if isinstance(basic, tuple):
        _add_pair(sent, *map(str, basic))
    bearer = getattr(rest, "bearer_field_provider", None)
    for holder in (bearer, getattr(bearer, "client", None)):
        for name in _CREDENTIALS:
            secret = getattr(holder, name, None)
            sent.add(secret if isinstance(secret, str) else "")
    return sent


def _add_pair(sent: SentSecrets, user: str, password: str) -> None:
    if password:
        sent.add(password)
        sent.add_encoded(f"{user}:{password}".encode())


async def _close(client: AsyncSchemaRegistryClient) -> None:
    async with client:  # leaving it closes it in every release; `aclose` came after 2.14
        pass


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
