"""Asks a proxy for a connection to a broker: SOCKS5 (RFC 1928, RFC 1929), or HTTP's CONNECT (RFC 9110, section 9.3.6).

Proxies are not trusted: a response is read strictly, its length is bounded, and what of it an error shows is escaped.
Bytes behind a response end the connection, since a broker says nothing before it is asked: they could only be meant to
be taken for what TLS protects later.

python-socks is not used: it resolves names in the loop's default executor (see `addresses`), tries one address, takes
the first segment for the whole of an HTTP response, and opens sockets, which other transports than TCP do not have.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from aioproducer._network.addresses import AddressRace, direct, interleaved, look_up, place_text
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer.errors import AuthenticationError, BrokerConnectionError

if TYPE_CHECKING:
    from aioproducer.security import Secret

LARGEST_HTTP_RESPONSE: Final = 16_384
SOCKS5: Final = "socks5"
SOCKS5H: Final = "socks5h"
HTTP: Final = "http"

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r\n")
_HTTP_BEGINNING: Final = b"HTTP/1."
_LONGEST_NAME: Final = 255  # of a host in SOCKS5
_CHALLENGE: Final = re.compile(rb"(?im)^proxy-authenticate:[ \t]*([a-z0-9!#$%&'*+.^_`|~-]{1,40})")
_MOST_SCHEMES: Final = 5
_SHOWN: Final = 64  # characters of an invalid response
_SOCKS_VERSION: Final = 5
_NO_METHOD, _NO_AUTHENTICATION, _PASSWORD = 0xFF, 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_SIZES: Final = {_IPV4: 4, _IPV6: 16}
_REFUSALS: Final = (
    "granted",
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "time to live expired",
    "command not supported",
    "kind of address not supported",
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; shown without its password.

    Attributes:
        scheme: `socks5`, whose names are resolved here; `socks5h` or `http`, which resolve them.
        host: a name, or an address without brackets.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)

    @property
    def resolves_names(self) -> bool:
        """Whether the proxy is given names instead of addresses."""
        return self.scheme != SOCKS5

    def __str__(self) -> str:
        """Return the URL, with the password hidden."""
        who = "" if self.user is None else f"{self.user}{'' if self.password is None else ':<hidden>'}@"
        return f"{self.scheme}://{who}{place_text(self.host, self.port)}"

    def credentials(self) -> tuple[bytes, bytes] | None:
        if self.user is None:
            return None
        return self.user.encode(), b"" if self.password is None else self.password.reveal().encode()

    def sent(self) -> SentSecrets:
        """Return what is hidden in the proxy's words."""
        sent, credentials = SentSecrets(), self.credentials()
        if credentials is not None:
            sent.add(credentials[1].decode())
            sent.add_encoded(b":".join(credentials))
        return sent


class ProxyError(BrokerConnectionError):
    """A proxy did not give a connection."""


class ProxyAuthenticationError(AuthenticationError):
    """A proxy refuses the user, or wants one."""


class Step(NamedTuple):
    """Bytes to send, and how much of a response to wait for: this many bytes, or up to a blank line."""

    send: bytes
    size: int | None


Exchange: TypeAlias = Generator[Step, bytes, None]


def ask(proxy: Proxy, host: str, port: int) -> Exchange:
    """Ask for a connection; ProxyError or ProxyAuthenticationError if the proxy refuses, or is none."""
    return _ask_http(proxy, host, port) if proxy.scheme == HTTP else _ask_socks5(proxy, host, port)


def _ask_socks5(proxy: Proxy, host: str, port: int) -> Exchange:
    yield from _greet_socks5(proxy.credentials())
    request = bytes([_SOCKS_VERSION, 1, 0]) + _socks5_address(host) + port.to_bytes(2, "big")
    version, reply, _, kind = yield Step(request, 4)
    _check_version(version, reply)
    if reply != 0:
        raise ProxyError(f"it refuses: {_REFUSALS[reply] if reply < len(_REFUSALS) else f'reply {reply}'}")
    size = _ADDRESS_SIZES.get(kind)
    if kind == _NAME:
        (size,) = yield Step(b"", 1)
    if size is None:
        raise ProxyError(f"it answers with an address of the unknown kind {kind}")
    yield Step(b"", size + 2)


def _greet_socks5(credentials: tuple[bytes, bytes] | None) -> Exchange:
    methods = bytes([_NO_AUTHENTICATION] if credentials is None else [_NO_AUTHENTICATION, _PASSWORD])
    version, method = yield Step(bytes([_SOCKS_VERSION, len(methods)]) + methods, 2)
    _check_version(version, method)
    if method == _NO_METHOD:
        wants = "wants a user and a password" if credentials is None else "takes no user and password"
        raise ProxyAuthenticationError(f"it {wants}")
    if method not in methods:
        raise ProxyError(f"it chose the authentication method {method}, which was not offered")
    if method == _PASSWORD and credentials is not None:
        user, password = credentials
        _, status = yield Step(bytes([1, len(user)]) + user + bytes([len(password)]) + password, 2)
        if status != 0:
            raise ProxyAuthenticationError("it refuses the user or the password")


def _check_version(version: int, behind: int) -> None:
    if version != _SOCKS_VERSION:
        raise ProxyError(f"it is no SOCKS5 proxy: it answers {_shown(bytes([version, behind]), SentSecrets())}")


def _socks5_address(host: str) -> bytes:
    address = _address(host)
    if address is None:
        name = _ascii_name(host)
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if isinstance(address, ipaddress.IPv4Address) else _IPV6]) + address.packed


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _ask_http(proxy: Proxy, host: str, port: int) -> Exchange:
    place = place_text(host if _address(host) is not None else _ascii_name(host).decode(), port)
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    credentials = proxy.credentials()
    if credentials is not None:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(b':'.join(credentials)).decode()}")
    response = yield Step("\r\n".join([*lines, "", ""]).encode(), None)
    sent = proxy.sent()
    status = _STATUS_LINE.match(response)
    if status is None:
        raise ProxyError(f"it is no HTTP proxy: it answers {_shown(response, sent)}")
    code = int(status[1])
    if code == 407:  # noqa: PLR2004
        raise ProxyAuthenticationError(f"it {_wanted(response, sent, has_credentials=credentials is not None)} (407)")
    if not 200 <= code < 300:  # noqa: PLR2004
        raise ProxyError(f"it refuses: {code} {_shown(status[2] or b'', sent)}".rstrip())


def _wanted(response: bytes, sent: SentSecrets, *, has_credentials: bool) -> str:
    """Return what a proxy that answers 407 wants."""
    schemes = list(dict.fromkeys(each.decode() for each in _CHALLENGE.findall(response)))
    if schemes and not any(scheme.lower() == "basic" for scheme in schemes):
        offered = " or ".join(sent.shown(scheme) for scheme in schemes[:_MOST_SCHEMES])
        return (
            f"wants {offered}, and this client speaks only Basic: let the proxy offer Basic, or run a proxy on this "
            f"machine that speaks {offered} to it, such as px or cntlm"
        )
    return "refuses the user or the password" if has_credentials else "wants a user and a password"


def _ascii_name(host: str) -> bytes:
    """Return a name as it is sent; metadata chooses it, and a line break would add lines to the request."""
    try:
        name = host.encode("ascii") if host.isascii() else host.encode("idna")
    except UnicodeError:
        name = b""
    if not 0 < len(name) <= _LONGEST_NAME or re.search(rb"[^!-~]", name):
        raise ProxyError(f"{printable(host)} is no name to ask a proxy for")
    return name


def _shown(response: bytes, sent: SentSecrets) -> str:
    return sent.shown(response.decode("latin-1"), _SHOWN)


class ProxyProtocol(asyncio.Protocol):
    """Speaks with a proxy until it has connected, then gives the transport to the protocol that `make` creates."""

    _transport: asyncio.Transport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        make: Callable[[], asyncio.Protocol],
        *,
        sent: SentSecrets,
    ) -> None:
        self.done: asyncio.Future[asyncio.Protocol] = loop.create_future()
        self._exchange = exchange
        self._make = make
        self._sent = sent
        self._step = Step(b"", 0)
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._go_on(None)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while not self.done.done() and (response := self._answer()) is not None:
            self._go_on(response)

    def eof_received(self) -> None:
        self._fail(ProxyError("it closed the connection in the middle of its answer" if self._held else "it hung up"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ProxyError(f"the connection to it was lost: {exc}" if exc else "it hung up"))

    @property
    def held_bytes(self) -> int:
        """Number of bytes of an incomplete answer."""
        return len(self._held)

    def abort(self) -> None:
        """Close the connection, also that of a protocol that has taken it over."""
        self._fail(ProxyError("it was given up"))
        self._transport.abort()

    def _answer(self) -> bytes | None:
        """Return what the step waits for, once it is there."""
        size = self._step.size
        if size is None:
            end = self._held.find(b"\r\n\r\n")
            begins_well = self._held.startswith(_HTTP_BEGINNING[: len(self._held)])
            if begins_well and max(end, len(self._held) if end < 0 else 0) > LARGEST_HTTP_RESPONSE:
                self._fail(ProxyError(f"its answer has more than {LARGEST_HTTP_RESPONSE} bytes"))
            if begins_well and end < 0:
                return None
            size = end + 4 if begins_well else len(self._held)
        if not size or len(self._held) < size:
            return None
        response, self._held = self._held[:size], self._held[size:]
        return response

    def _go_on(self, response: bytes | None) -> None:
        try:
            self._step = next(self._exchange) if response is None else self._exchange.send(response)
        except StopIteration:
            self._hand_over()
            return
        except (ProxyError, AuthenticationError) as error:
            self._fail(error)
            return
        if self._step.send:
            if self._held:
                self._fail(ProxyError(f"it sent {_shown(self._held, self._sent)} before it was asked"))
                return
            self._transport.write(self._step.send)

    def _hand_over(self) -> None:
        if self._held:
            self._fail(
                ProxyError(f"it sent {_shown(self._held, self._sent)} behind its answer, where no broker speaks first")
            )
            return
        inner = self._make()
        self.done.set_result(inner)
        self._transport.set_protocol(inner)
        inner.connection_made(self._transport)

    def _fail(self, error: ProxyError | AuthenticationError) -> None:
        if self.done.done():
            return
        self._exchange.close()
        self._transport.abort()
        self.done.set_exception(error)
        self.done.exception()  # marks it as retrieved


async def connect_through(
    loop: asyncio.AbstractEventLoop,
    proxy: Proxy,
    make: Callable[[], asyncio.Protocol],
    *,
    host: str,
    port: int,
    note: Callable[[str], None],
) -> asyncio.Protocol:
    """Connect to a broker through a proxy, and return the protocol that `make` creates; the caller limits the time.

    `note` is called with what is waited for, at each step.

    Raises ProxyError or ProxyAuthenticationError, as `ask`, and if the proxy cannot be reached.
    """
    note(f"the name of the proxy {proxy} has not been resolved")
    try:
        found = await look_up(loop, proxy.host, proxy.port)
    except OSError as error:
        raise ProxyError(f"it cannot be resolved: {error.strerror or error}") from error
    note(f"the proxy {proxy} has not accepted a connection")
    contenders = direct(loop, interleaved(found))
    sent = proxy.sent()
    race = AddressRace(contenders, lambda: ProxyProtocol(loop, ask(proxy, host, port), make, sent=sent), loop=loop)
    won = await race.winner()
    if won is None:
        raise ProxyError(f"it cannot be reached: {race.reasons or 'its name has no address'}")
    note(f"the proxy {proxy} is connected to, and has not answered: does it connect to {place_text(host, port)}?")
    try:
        return await won.protocol.done
    except BaseException:
        won.protocol.abort()
        raise
