"""Arguments that commands share: text in UTF-8, and servers and security, also from a file or the environment.

An argument wins over the file of `--config`, and the file over the environment variable.
"""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Final, TypeAlias

import typer

from aioproducer.cli.running import usage_error
from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import kafka_name, python_name
from aioproducer.config._properties_file import Property, read_properties
from aioproducer.errors import ConfigurationError

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

_PROVIDER: Final = "sasl.token.provider"
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
_OF_OBJECTS: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Properties about objects that commands do not have: their records are bytes."""


class FileProperties:
    """The properties of `--config`, by Kafka's names; empty without a file.

    Raises:
        ConfigurationError: the file cannot be read; says why.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._properties: Mapping[str, Property] = {} if path is None else _read(path)

    @property
    def all(self) -> dict[str, str]:
        """Without those about objects, and without servers."""
        return {
            name: found.value
            for name, found in self._properties.items()
            if kafka_name(python_name(name)) not in {_SERVERS, *_OF_OBJECTS}
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
        lines = [
            found.line
            for name, found in self._properties.items()
            if python_name(name) == error.option and error.option not in replaced
        ]
        return f"{self._path}, line {max(lines)}: {error}" if lines else str(error)


_SERVERS_OPTION: Final = python_name(_SERVERS)


def _is_of_connections(name: str) -> bool:
    """Whether a property says how to connect, or is meant to: a misspelt one is then refused."""
    spelled = name.replace("_", ".")
    return spelled.startswith(_OF_CONNECTIONS) or bool(get_close_matches(spelled, _OF_CONNECTIONS, n=1, cutoff=0.9))


def file_properties(path: str | None) -> FileProperties:
    """Return the properties of `--config`; a file that cannot be read is a usage error."""
    try:
        return FileProperties(path)
    except ConfigurationError as error:
        usage_error(str(error))


def provider_properties(token_provider: str | None) -> dict[str, object]:
    """Return the property that `--token-provider` gives, if any; one that cannot be had is a usage error."""
    if token_provider is None:
        return {}
    from aioproducer.security._named_providers import named_provider  # noqa: PLC0415  # only then

    try:
        return {_PROVIDER: named_provider(token_provider)}
    except ConfigurationError as error:
        usage_error(f"--token-provider: {error}")


def connection_config(
    bootstrap_server: str | None, config_file: str | None, *, client_id: str, token_provider: str | None = None
) -> ProducerConfig:
    """Return the configuration of a command that only connects; anything wrong is a usage error."""
    properties = file_properties(config_file)
    servers = properties.servers(bootstrap_server)
    provided = provider_properties(token_provider)
    try:
        return ProducerConfig.from_kafka_properties(
            {_SERVERS: servers, "client.id": client_id, **properties.of_connections, **provided}
        )
    except ConfigurationError as error:
        usage_error(properties.located(error, besides=() if bootstrap_server is None else (_SERVERS,)))


def _read(path: str) -> dict[str, Property]:
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
