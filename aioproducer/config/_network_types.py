"""`bootstrap_servers`, and the types of the options that lead connections to other places than brokers advertise.

Source: org.apache.kafka.clients.ClientUtils.parseAndValidateAddresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes

from aioproducer._network.addresses import LAST_PORT, parse_place, place_text
from aioproducer._network.proxy import HTTP, SOCKS5, SOCKS5H, Proxy
from aioproducer._network.routes import AddressMap, BrokerPattern
from aioproducer._shown_values import shown
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.security._secret import check_variable, is_read_later, revealed_if_there, secret_of

_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?")
_PORT = re.compile(r"[0-9]{1,10}")
_NO_COMMA = re.compile(r"[;|\s]")  # separators that users write in place of commas


def parse_bootstrap_servers(given: object) -> tuple[tuple[str, int], ...]:
    """Return the (host, port) pairs in the order given, each once; IPv6 hosts without their brackets.

    Args:
        given: `"a:9092,b:9092"`, or a sequence of `"a:9092"`.
    """
    parts = _split(given)
    if any("@" in part for part in parts):
        # Before all else, and for all parts at once: a password with a comma stands in two of them.
        place = ",".join(parts).rpartition("@")[2]
        _refuse_servers(f"bootstrap_servers takes host:port without a user: {place!r}")
    servers = [_parse_server(server) for server in parts]
    if not servers:
        _refuse_servers("bootstrap_servers is empty; give at least one host:port, such as 'localhost:9092'")
    return tuple(dict.fromkeys(servers))


def _split(given: object) -> list[str]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]
    if isinstance(given, Mapping):
        _refuse_type(
            "bootstrap_servers must be a str or a sequence of str; options in a dict are "
            "Producer(ProducerConfig.from_kafka_properties(...))",
            given,
        )
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Sequence):
        _refuse_type("bootstrap_servers must be a str or a sequence of str", given)
    for index, server in enumerate(given):
        if not isinstance(server, str):
            _refuse_type(f"bootstrap_servers[{index}] must be a str such as 'localhost:9092'", server)
    return [server.strip() for server in given]


def _parse_server(server: str) -> tuple[str, int]:
    if "," in server:
        _refuse_server(server, "each item of a sequence is one server")
    if "://" in server:
        rest = server.partition("://")[2].rstrip("/")
        _refuse_servers(f"bootstrap_servers takes host:port without a scheme: {rest!r}, not {server!r}")
    if server.count(":") > 1 and _NO_COMMA.search(server):
        _refuse_server(server, "several servers have commas between them")
    host, colon, port = server.rpartition(":")
    if not colon or not port or server.endswith("]"):
        _refuse_server(server, "it has no port; brokers usually listen on 9092")
    return _checked_host(server, host), _checked_port(server, port)


def _checked_host(server: str, host: str) -> str:
    if host.startswith("[") and host.endswith("]") and _IPV6.fullmatch(host[1:-1]):
        return host[1:-1]
    if host.startswith("[") or host.endswith("]"):
        _refuse_server(server, "an IPv6 address is written [::1]:9092")
    if not host:
        _refuse_server(server, "it has no host")
    if ":" in host:
        _refuse_server(server, "an IPv6 address needs brackets, [::1]:9092")
    if not _HOST_NAME.fullmatch(host):
        _refuse_server(server, "the host has a character that no host name has")
    return host


def _checked_port(server: str, port: str) -> int:
    if not _PORT.fullmatch(port):
        _refuse_server(server, "the port is not a number")
    if not 1 <= int(port) <= LAST_PORT:
        _refuse_server(server, f"the port must be between 1 and {LAST_PORT}")
    return int(port)


def _refuse_server(server: str, why: str) -> NoReturn:
    _refuse_servers(f"bootstrap_servers: {server!r} is not host:port: {why}")


def _refuse_servers(message: str) -> NoReturn:
    raise ConfigurationError(message, option="bootstrap_servers")


def _refuse_type(message: str, value: object) -> NoReturn:
    raise ConfigurationTypeError(f"{message}, not {type(value).__name__}", option="bootstrap_servers")


_SCHEMES: Final = (SOCKS5, SOCKS5H, HTTP)
_LONGEST_CREDENTIAL: Final = 255  # bytes, in SOCKS5
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,11}")
_ENDS_WITH_PORT: Final = re.compile(r":[0-9]+$")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?")
_PATTERN: Final = re.compile(r"(?:\[([0-9A-Fa-f:.*?%]+)]|([A-Za-z0-9._*?-]+))(?::(\*|[0-9]{1,5}))?")


class ProxyUrl:
    """A proxy's URL, as text or as a `Secret`; kept without its password in any text.

    A `Secret` of a variable or file is kept as it is, and read for each connection.
    """

    is_secret: Final = True  # `ProducerConfig.given` keeps the accepted value, not the text

    allowed: Final = "socks5://, socks5h:// or http://[user:password@]host:port, as text or a Secret, or None"

    def accept(self, name: str, value: object) -> Proxy | Secret | None:
        if value is None or isinstance(value, Proxy):
            return value
        if isinstance(value, Secret):
            check_variable(name, value)
            text = revealed_if_there(value)
            if is_read_later(value):
                if text is not None:
                    _parse_proxy(name, text.strip())
                return value
            value = text
        if not isinstance(value, str):
            # No value is shown: it may be a secret of the wrong type.
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        return _parse_proxy(name, value.strip())

    def parse(self, name: str, text: str) -> Secret | None:
        return secret_of(name, text) if text.strip() else None


@clears_frames
def read_proxy(secret: Secret) -> Proxy:
    """Return the proxy that a variable or file names now, or raise ConfigurationError."""
    return _parse_proxy("proxy_url", secret.reveal().strip())


def _parse_proxy(name: str, url: str) -> Proxy:
    """Return the proxy; no error shows what stands before the `@`, which may be a password."""
    scheme, colon, rest = url.partition("://")
    who, _, text = rest.rpartition("@")
    if not colon:
        _refuse(name, "it has no scheme, such as socks5h://")
    if scheme.lower() not in _SCHEMES:
        shown_scheme = scheme if _SCHEME.fullmatch(scheme) else "its scheme"
        _refuse(name, f"{shown_scheme} is none of {', '.join(_SCHEMES)}")
    text = text.removesuffix("/")
    if not _ENDS_WITH_PORT.search(text):
        _refuse(name, "it has no port")
    place = parse_place(text)
    if place is None or not _HOST.fullmatch(place[0]):
        _refuse(name, f"no host:port stands behind its user, with a port between 1 and {LAST_PORT}")
    host, port = place
    user, has_password, password = who.partition(":")
    return Proxy(
        scheme=scheme.lower(),
        host=host,
        port=port,
        user=_credential(name, user) if who else None,
        password=Secret(_credential(name, password)) if has_password else None,
    )


def _credential(name: str, quoted: str) -> str:
    text = _unquoted(quoted)
    if text is None:
        _refuse(name, "its user or password is not UTF-8")
    if len(text.encode()) > _LONGEST_CREDENTIAL:
        _refuse(name, f"its user or password has more than {_LONGEST_CREDENTIAL} bytes")
    if any(letter in text for letter in "\0\r\n"):
        _refuse(name, "its user or password has a control character")
    return text


def _unquoted(quoted: str) -> str | None:
    try:
        return unquote_to_bytes(quoted).decode()
    except UnicodeError:  # in the quoted bytes, or lone surrogates in the text; its repr shows them
        return None


def _refuse(name: str, why: str) -> NoReturn:
    raise ConfigurationError(f"{name} must be like socks5h://user:password@host:1080: {why}", option=name)


class AddressMapOption:
    """Addresses to connect to instead of advertised ones: a dict, or a function of one argument."""

    allowed: Final = 'a dict {"host:port": "host:port"}, a function of "host:port", or None'

    def accept(self, name: str, value: object) -> AddressMap | None:
        if value is None or callable(value):
            return value
        if not isinstance(value, Mapping):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        return {_place(name, key): _place(name, place) for key, place in value.items()} or None

    def parse(self, name: str, text: str) -> dict[str, str]:
        """Read `advertised:9092=reachable:19092,...`."""
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        for advertised, equals, _ in pairs:
            if not equals:
                raise ConfigurationError(
                    f"{name}: {_shown_place(advertised)} is not like advertised:9092=reachable:19092", option=name
                )
        return {advertised.strip(): place.strip() for advertised, _, place in pairs}


def _shown_place(text: str) -> str:
    return shown(text.rpartition("@")[2])  # what stands before it may be a password


def _place(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationTypeError(f"{name}: {shown(text)} is not a str such as 'kafka-1:9092'", option=name)
    place = parse_place(text)
    if place is None:
        raise ConfigurationError(f"{name}: {_shown_place(text)} is not host:port", option=name)
    return place_text(*place)


class AllowedBrokers:
    """Patterns of the brokers that may be connected to: `host` or `host:port`, with `*` and `?`."""

    allowed: Final = 'patterns such as ("kafka-*.internal", "10.0.0.*:9092", "[fd00::*]:9092"), or None'

    def accept(self, name: str, value: object) -> tuple[BrokerPattern, ...]:
        if value is None:
            return ()
        if isinstance(value, str):
            value = [part for part in value.split(",") if part.strip()]
        if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
            raise ConfigurationTypeError(f"{name} must be {self.allowed}, not {type(value).__name__}", option=name)
        return tuple(_pattern(name, each) for each in value)

    def parse(self, name: str, text: str) -> str | None:  # noqa: ARG002  # OptionKind
        return text if text.strip() else None


def _pattern(name: str, text: object) -> BrokerPattern:
    if isinstance(text, BrokerPattern):
        return text
    if not isinstance(text, str):
        raise ConfigurationTypeError(f"{name}: {shown(text)} is not a str such as 'kafka-*.internal'", option=name)
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        hint = ": an IPv6 address needs brackets" if text.count(":") > 1 and "[" not in text else ""
        raise ConfigurationError(f"{name}: {_shown_place(text)} is no pattern of host or host:port{hint}", option=name)
    port = None if match[3] in {None, "*"} else int(match[3])
    if port is not None and not 1 <= port <= LAST_PORT:
        raise ConfigurationError(f"{name}: the port of {shown(text)} must be between 1 and {LAST_PORT}", option=name)
    return BrokerPattern((match[1] or match[2]).lower(), port, text.strip())
