"""Arguments that commands share: text in UTF-8, and servers and security, also from a file or the environment.

An argument wins over the file of `--config`, and the file over the environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, TypeAlias

import typer

from aioproducer.cli.process import tell
from aioproducer.cli.running import usage_error
from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import kafka_name, python_name, reason_to_ignore
from aioproducer.config._problems import placed
from aioproducer.config._properties_file import Property, read_properties
from aioproducer.errors import ConfigurationError
from aioproducer.security._cleared_frames import clears_frames

SERVERS_VARIABLE: Final = "AIOPRODUCER_BOOTSTRAP_SERVERS"
LOCAL: Final = "127.0.0.1:9092"

BootstrapServer: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        help="A broker, or several with commas.",
        show_default=f"of --config, or ${SERVERS_VARIABLE}, or {LOCAL}",
    ),
]
ConfigFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A property file of Kafka's clients, such as client.properties: servers, TLS, credentials, proxies.",
        show_default=False,
    ),
]
TokenProviderName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token-provider",
        metavar="MODULE:OBJECT",
        help="Tokens for OAUTHBEARER: an object with async def token(), or a class or function that makes one; or "
        "ClientCredentials, JwtBearer or MskIam. Arguments follow in the same text: 'MskIam region=eu-central-1'; a "
        "secret is client_secret=env:VARIABLE or file:PATH.",
        show_default=False,
    ),
]

LEAST_TIMEOUT_S: Final = 0.1
MOST_SECONDS: Final = 2_147_483
"""As many as an int32 has in milliseconds: what sockets and requests take."""


def seconds_from(least: float) -> Callable[[float | None], float | None]:
    """Return the check of an option in seconds; what is no number is refused too, which `min` and `max` let pass."""

    def check(seconds: float | None) -> float | None:
        if seconds is not None and not least <= seconds <= MOST_SECONDS:
            raise typer.BadParameter(f"{seconds:g} is not a number of seconds from {least:g} to {MOST_SECONDS}.")
        return seconds

    return check


checked_timeout: Final[Callable[[float | None], float | None]] = seconds_from(LEAST_TIMEOUT_S)

_PROVIDER: Final = "sasl.token.provider"
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_SERVERS: Final = "bootstrap.servers"
_OF_CONNECTIONS: Final = (
    "address.map",
    "allow.plaintext.credentials",
    "allowed.brokers",
    "bootstrap.servers",
    "client.dns.lookup",
    "proxy.url",
    "sasl.",
    "security.protocol",
    "ssl.",
)
"""Properties, or beginnings of them, that say how to connect; producers and consumers have them alike."""
OF_OBJECTS: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Properties about objects that commands do not have: their records are bytes."""


class FileProperties:
    """The properties of `--config`, by Kafka's names; empty without a file.

    Args:
        path: of the file.
        provided: further properties, which are objects.

    Raises:
        ConfigurationError: the file cannot be read; says why.
    """

    def __init__(self, path: str | None, provided: Mapping[str, object] = _NOTHING) -> None:
        self.provided = provided
        self._path = path
        self._properties: Mapping[str, Property] = {} if path is None else _read(path)

    @property
    def all(self) -> dict[str, str]:
        """Without those about objects, without servers, and without those of other clients."""
        return {
            name: found.value
            for name, found in self._properties.items()
            if kafka_name(python_name(name)) not in {_SERVERS, *OF_OBJECTS} and not reason_to_ignore(python_name(name))
        }

    @property
    def of_connections(self) -> dict[str, str]:
        """Those that say how to connect, which the files of producers, consumers and tools have alike."""
        return {name: value for name, value in self.all.items() if _is_of_connections(name)}

    def besides(self, given: Iterable[str]) -> dict[str, str]:
        """Return all but those that arguments have given, in either spelling."""
        replaced = {python_name(name) for name in given}
        return {name: value for name, value in self.all.items() if python_name(name) not in replaced}

    def servers(self, argument: str | None) -> str:
        """Return the servers to connect to first."""
        in_file = next(
            (found.value for name, found in self._properties.items() if python_name(name) == _SERVERS_OPTION), ""
        )
        return argument if argument is not None else in_file or os.environ.get(SERVERS_VARIABLE, "") or LOCAL

    def located(self, error: ConfigurationError, *, besides: Iterable[str] = ()) -> str:
        """Return the text of an error, with file and line if the option stands there.

        Args:
            besides: names of properties that arguments have replaced.
        """
        replaced = {python_name(name) for name in besides}

        def place(problem: ConfigurationError) -> str:
            found = [each.line for name, each in self._properties.items() if python_name(name) == problem.option]
            return f"{self._path}, line {max(found)}" if found and problem.option not in replaced else ""

        return str(placed(error, place))

    def for_a_producer(self) -> ProducerView:
        """Return what a producer says of the whole file, of which other commands read what concerns connections."""
        every = {name: found.value for name, found in self._properties.items()}
        if not any(python_name(name) == _SERVERS_OPTION for name in every):
            every[_SERVERS] = LOCAL
        try:
            config = ProducerConfig.from_kafka_properties({**every, **self.provided})
        except ConfigurationError as error:
            return ProducerView([self.located(problem) for problem in error.problems or (error,)], [])
        return ProducerView([], list(config.notes))


def tell_ignored(properties: FileProperties) -> None:
    """Tell what a command that sends does not use of the file."""
    for note in properties.for_a_producer().ignored:
        tell(f"aioproducer: {note}")


def tell_unused_id(properties: FileProperties, why: str) -> None:
    """Tell that a command does not use the transactional id of the file, if there is one."""
    if any(python_name(name) == "transactional_id" for name in properties.all):
        tell(f"aioproducer: not used here: transactional.id: {why}")


class ProducerView(NamedTuple):
    """The view of a producer on a file."""

    refused: list[str]
    """The options that it refuses."""

    ignored: list[str]
    """Notes on what it does not use, or reads differently from Java."""


_SERVERS_OPTION: Final = python_name(_SERVERS)


def _is_of_connections(name: str) -> bool:
    """Whether a property says how to connect, or is meant to: a misspelt one is then refused."""
    spelled = name.replace("_", ".")
    return spelled.startswith(_OF_CONNECTIONS) or bool(get_close_matches(spelled, _OF_CONNECTIONS, n=1, cutoff=0.9))


@clears_frames
def file_properties(path: str | None, token_provider: str | None = None) -> FileProperties:
    """Return the properties of `--config` and `--token-provider`; what cannot be had is a usage error."""
    provided = _provided(token_provider)
    try:
        return FileProperties(path, provided)
    except ConfigurationError as error:
        usage_error(str(error))


def _provided(token_provider: str | None) -> dict[str, object]:
    if token_provider is None:
        return {}
    from aioproducer.security._named_providers import named_provider  # noqa: PLC0415  # only then

    try:
        return {_PROVIDER: named_provider(token_provider)}
    except ConfigurationError as error:
        usage_error(f"--token-provider: {error}")


@clears_frames
def connection_config(
    bootstrap_server: str | None, config_file: str | None, *, client_id: str, token_provider: str | None = None
) -> ProducerConfig:
    """Return the configuration of a command that only connects; anything wrong is a usage error."""
    properties = file_properties(config_file, token_provider)
    config = config_of_connections(bootstrap_server, properties, client_id=client_id)
    for refused in properties.for_a_producer().refused:
        tell(f"aioproducer: a producer would refuse this: {refused}")
    return config


def config_of_connections(server: str | None, properties: FileProperties, *, client_id: str) -> ProducerConfig:
    """Return the configuration of a command that only connects; anything wrong with that is a usage error."""
    servers = properties.servers(server)
    try:
        return ProducerConfig.from_kafka_properties(
            {_SERVERS: servers, "client.id": client_id, **properties.of_connections, **properties.provided}
        )
    except ConfigurationError as error:
        usage_error(properties.located(error, besides=() if server is None else (_SERVERS,)))


def _read(path: str) -> dict[str, Property]:
    if not path:  # as of a variable of the shell that is not set; it would be the current folder
        raise ConfigurationError("--config must not be empty")
    try:
        return read_properties(path)
    except OSError as error:
        raise ConfigurationError(f"--config {path}: {error.strerror or error}") from error


def text_of(name: str, argument: str) -> str:
    """Return an argument decoded as UTF-8, independent of the locale."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        raise ValueError(f"{name} {argument!r}: not UTF-8") from None


def required_text(name: str, argument: str | None) -> str:
    """Return the argument as `text_of` does; a missing, empty or invalid one is a usage error."""
    if argument is None:
        usage_error(f"{name} is missing")
    try:
        text = text_of(name, argument)
    except ValueError as error:
        usage_error(str(error))
    if not text:
        usage_error(f"{name} must not be empty")
    return text
