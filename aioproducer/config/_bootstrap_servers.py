"""Reads `bootstrap_servers`.

Source: org.apache.kafka.clients.ClientUtils.parseAndValidateAddresses.
"""

import re
from collections.abc import Sequence
from typing import NoReturn

from aioproducer.errors import ConfigurationError, ConfigurationTypeError

MAX_PORT = 65535

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?")
_PORT = re.compile(r"[0-9]{1,10}")
_NO_COMMA = re.compile(r"[;|\s]")  # separators that users write in place of commas


def parse_bootstrap_servers(given: object) -> tuple[tuple[str, int], ...]:
    """Return the (host, port) pairs in the order given, each once; IPv6 hosts without their brackets.

    Args:
        given: `"a:9092,b:9092"`, or a sequence of `"a:9092"`.
    """
    servers = [_parse_server(server) for server in _split(given)]
    if not servers:
        _refuse("bootstrap_servers is empty; give at least one host:port, such as 'localhost:9092'")
    return tuple(dict.fromkeys(servers))


def _split(given: object) -> list[str]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Sequence):
        _refuse_type("bootstrap_servers must be a str or a sequence of str", given)
    for index, server in enumerate(given):
        if not isinstance(server, str):
            _refuse_type(f"bootstrap_servers[{index}] must be a str such as 'localhost:9092'", server)
    return [server.strip() for server in given]


def _parse_server(server: str) -> tuple[str, int]:
    if "," in server:
        _refuse_server(server, "each item of a sequence is one server")
    if "@" in server:  # not shown: it may be a password
        _refuse(f"bootstrap_servers takes host:port without a user: {server.rpartition('@')[2]!r}")
    if "://" in server:
        rest = server.partition("://")[2].rstrip("/")
        _refuse(f"bootstrap_servers takes host:port without a scheme: {rest!r}, not {server!r}")
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
    if not _HOST.fullmatch(host):
        _refuse_server(server, "the host has a character that no host name has")
    return host


def _checked_port(server: str, port: str) -> int:
    if not _PORT.fullmatch(port):
        _refuse_server(server, "the port is not a number")
    if not 1 <= int(port) <= MAX_PORT:
        _refuse_server(server, f"the port must be between 1 and {MAX_PORT}")
    return int(port)


def _refuse_server(server: str, why: str) -> NoReturn:
    _refuse(f"bootstrap_servers: {server!r} is not host:port: {why}")


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, option="bootstrap_servers")


def _refuse_type(message: str, value: object) -> NoReturn:
    raise ConfigurationTypeError(f"{message}, not {type(value).__name__}", option="bootstrap_servers")
