"""Schemas, the registry that keeps them, as the serializers need it, and confluent-kafka's client of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, cast, get_args
from urllib.parse import unquote, urlsplit

from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer._shown_values import shown
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
_KINDS: Final = get_args(SchemaKind)

SubjectStrategy: TypeAlias = Literal["topic", "record", "topic_record"] | Callable[[str, str, bool], str]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses.

    Raises:
        TypeError: an argument.
    """

    name: str
    """As the other schema names it: the full name of an Avro type, the `$ref` of a JSON Schema, or the file of an
    import."""
    subject: str
    """Subject under which it is registered."""
    schema: Schema
    """The schema itself: values are encoded by it too."""
    version: int | None = None
    """Version of the subject; None registers the schema, or looks its version up."""

    def __post_init__(self) -> None:
        _check_type("name", self.name, str, allowed="text")
        _check_type("subject", self.subject, str, allowed="text")
        _check_type("schema", self.schema, Schema, allowed="a Schema")
        _check_type("version", self.version, int | None, allowed="an int or None")


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, as a registry keeps it.

    Raises:
        TypeError, ValueError: an argument, such as a reference of another kind.
    """

    text: str
    """JSON of an Avro or JSON Schema; of Protobuf, the `FileDescriptorProto` in base64."""
    kind: SchemaKind
    """`AVRO`, `JSON` or `PROTOBUF`."""
    references: tuple[SchemaReference, ...] = ()
    """Schemas that it uses, of the same kind."""

    def __post_init__(self) -> None:
        _check_type("text", self.text, str, allowed="text")
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, not {shown(self.kind)}")
        _check_type("references", self.references, tuple | list, allowed="a tuple of SchemaReference")
        for each in self.references:
            if not isinstance(each, SchemaReference):
                raise TypeError(f"references must be of SchemaReference, not {type(each).__name__}: {shown(each)}")
            if each.schema.kind != self.kind:
                text = f"references of a schema of kind {self.kind} must be {self.kind} too"
                raise ValueError(f"{text}: {shown(each.name)} is {each.schema.kind}")
        object.__setattr__(self, "references", tuple(self.references))


def _check_type(name: str, value: object, kind: type | UnionType, *, allowed: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {allowed}, not {type(value).__name__}")


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
    `topic_record` both with a `-` between; or a function of topic, name of the type and is_key, which is not async and
    returns text."""
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
    """Whether keys are encoded; a use for the other part is refused. Left out, the producer says so; without one, it is
    False."""


class ConfluentRegistry:
    """A schema registry, asked by confluent-kafka's `AsyncSchemaRegistryClient`.

    May be shared by serializers, also of several event loops: each loop has connections of its own, which end with it.
    Reads its certificates when it is made; connects with the first request.

    Args:
        registry: URLs, a configuration of `AsyncSchemaRegistryClient` such as `{"url": ...,
            "basic.auth.user.info": "user:password"}`, or such a client, which stays yours to close; it is for one loop.

    Raises:
        ModuleNotFoundError: the extra `registry` is not installed.
        TypeError, ValueError: of another type, or a configuration that the client refuses.
    """

    @clears_frames
    def __init__(self, registry: str | Mapping[str, object] | AsyncSchemaRegistryClient) -> None:
        self._given: AsyncSchemaRegistryClient | None = None
        self._made: _ClientOfEachLoop | None = None
        check_installed(_NEED, "registry", module="confluent_kafka.schema_registry")
        if isinstance(registry, str | Mapping):
            self._made = _ClientOfEachLoop({"url": registry} if isinstance(registry, str) else dict(registry))
        elif hasattr(registry, "register_schema_full_response"):
            self._given = registry
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
        """Close the connections of this event loop, unless the client was given."""
        if self._made is not None:
            await self._made.close()

    async def _open(self) -> AsyncSchemaRegistryClient:
        if self._given is not None:
            return self._given
        assert self._made is not None
        return await self._made.get()

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
        try:
            return Schema(theirs.schema_str or "", kind, tuple(references))
        except (TypeError, ValueError) as error:
            raise SchemaRegistryError(f"the schema of the registry: {error}") from error

    def __repr__(self) -> str:
        return "<ConfluentRegistry>"  # a URL or a configuration may hold a password


class _ClientOfEachLoop:
    """Clients of one configuration: the connections and locks of one belong to the event loop that uses it first.

    Loops may be of several threads. What a thread does with the dicts and lists here is one step each.

    Raises:
        TypeError, ValueError: the configuration is not valid.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._conf = conf
        self._unused = [_made(conf)]  # which checks the configuration, and connects to nothing yet
        self._of_loop: dict[asyncio.AbstractEventLoop, _OpenClient] = {}

    async def get(self) -> AsyncSchemaRegistryClient:
        """Return the client of the running loop.

        Raises:
            SchemaRegistryError: the certificates can no longer be read.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            client = await self._next()
            if loop in self._of_loop:  # another call was faster
                self._unused.append(client)
            else:
                self._of_loop[loop] = await _opened(client)
        return self._of_loop[loop].client

    async def close(self) -> None:
        """Close the client of the running loop; another one is made if the loop needs one again."""
        found = self._of_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.until_closed.aclose()

    async def _next(self) -> AsyncSchemaRegistryClient:
        for loop in [*self._of_loop]:
            if loop.is_closed():
                self._of_loop.pop(loop, None)
        try:
            return self._unused.pop()
        except IndexError:
            pass
        try:
            return await asyncio.to_thread(_made, self._conf)  # reads certificates
        except (TypeError, ValueError) as error:
            raise SchemaRegistryError(str(error)) from error


class _OpenClient(NamedTuple):
    """A client and the end of its connections."""

    client: AsyncSchemaRegistryClient
    until_closed: AsyncGenerator[None]


async def _opened(client: AsyncSchemaRegistryClient) -> _OpenClient:
    """Return a client that is closed at the latest with the running loop.

    A loop closes the generators that it has begun before it ends: `asyncio.run` and `asyncio.Runner` see to that.
    """

    async def until_closed() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await _close(client)

    closing = until_closed()
    await anext(closing)
    return _OpenClient(client, closing)


def _made(conf: Mapping[str, object]) -> AsyncSchemaRegistryClient:
    """Return a client.

    Raises:
        TypeError, ValueError: the configuration is not valid.
    """
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient  # noqa: PLC0415  # heavy, optional

    checked = _with_credentials_apart(conf)
    timeout = checked.get("timeout", 0)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"registry: timeout must be a number of seconds, not {type(timeout).__name__}")
    try:
        return AsyncSchemaRegistryClient(checked)
    except TypeError as error:
        raise TypeError(f"registry: {error}") from error
    except Exception as error:  # such as OSError: there is no such certificate
        raise ValueError(f"registry: {type(error).__name__}: {error}{_files_of(checked)}") from error


def _with_credentials_apart(conf: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration whose URLs have no user and password: httpx logs the URL of each request.

    Raises:
        TypeError, ValueError: the URLs are not valid.
    """
    urls = conf.get("url")
    if not isinstance(urls, str):
        raise TypeError(f"registry: url must be text, not {type(urls).__name__}")
    parts = [urlsplit(url.strip()) for url in urls.split(",")]
    if not all(each.scheme in {"http", "https"} and each.netloc for each in parts):
        raise ValueError("registry: url must be one or more URLs, http:// or https://, with commas between")
    for each in parts:
        try:
            _ = each.port
        except ValueError as error:
            raise ValueError("registry: the port of a url must be a number from 0 to 65535") from error
    found = {each.netloc.rpartition("@")[0] for each in parts}
    if found == {""}:
        return dict(conf)
    if len(found) > 1:
        raise ValueError("registry: all URLs must have the same user and password, or none")
    if conf.get("basic.auth.user.info"):
        raise ValueError("registry: give user and password in url or as basic.auth.user.info, not both")
    user, _, password = found.pop().partition(":")
    apart = [each._replace(netloc=each.netloc.rpartition("@")[2]).geturl() for each in parts]
    return {**conf, "url": ",".join(apart), "basic.auth.user.info": f"{unquote(user)}:{unquote(password)}"}


def _files_of(conf: Mapping[str, object]) -> str:
    """Return the files of a configuration, one of which cannot be used, for an error."""
    files = [
        f"{name}={conf[name]!r}" for name in sorted(conf) if name.startswith("ssl.") and name.endswith(".location")
    ]
    return f" (of {', '.join(files)})" if files else ""


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
        if _is_of_their_client(error):  # an answer that it takes for a registry's
            text = f"{what}: the answer is not that of a schema registry; is the URL right? {type(error).__name__}: "
        else:
            error = _telling(error)
            text = f"{what}: no answer of the registry: {type(error).__name__}: "
        failed = _failed(client, text, error, said=str(error))
    raise failed


def _is_of_their_client(error: Exception) -> bool:
    """Return whether confluent-kafka's own code has raised it, as where an answer is null or a list."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return isinstance(error, AttributeError | KeyError | TypeError) and module.startswith("confluent_kafka.")


def _telling(error: Exception) -> Exception:
    """Return the error that says why: that of httpx may be a group, or have no text, as where TLS fails."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        elif str(found) and isinstance(found, Exception):
            return found
        else:
            found = found.__cause__ or found.__context__
    return error


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
