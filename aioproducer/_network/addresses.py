"""Addresses of brokers: host and port as text, names resolved in a daemon thread, and a race of connections.

Of several addresses one is started 250 ms after another, and the first that connects wins (RFC 8305). Only the
transport that wins gets a protocol of the caller's: a transport begins with a stand-in, which decides in its
`connection_made`. There, and not in the task that waits: a task runs a turn later, and would lose what the other end
says in that turn. An address has its own time-out, which goes on after it has won: `Won.deadline` is that of its
handshake.

`loop.getaddrinfo` of asyncio and uvloop is not used:

- uvloop resolves names in libuv's thread pool. A forked child has that pool without its threads, and libuv joins them
  when the child exits: SIGSEGV (libuv/libuv#4443).
- asyncio resolves names in the loop's default executor. The application may have shut it down or filled it, the
  interpreter's exit shuts it down, and closing the loop waits for a lookup that hangs.

The `getaddrinfo` and `getnameinfo` of another loop, or those assigned to the loop, are called as they are.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import KafkaError

LAST_PORT: Final = 65_535
_PLACE: Final = re.compile(r"(?:\[([^][@/\s]+)]|([^][@/:\s]+)):([0-9]{1,5})")


def parse_place(text: str) -> tuple[str, int] | None:
    """Return host and port of `"host:port"`, the host without brackets; None if it is none."""
    match = _PLACE.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= LAST_PORT:
        return None
    return match[1] or match[2], int(match[3])


def place_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""(address, port), and for IPv6 flow info and scope id too."""

_Found: TypeAlias = Sequence[tuple[int, int, int, str, SocketAddress | tuple[int, bytes]]]  # of `getaddrinfo`

_THREAD: Final = "aioproducer-lookup"
_STOCK_RESOLVERS: Final = frozenset({"asyncio.base_events", "uvloop.loop"})


async def look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of a host, each once, in the resolver's order; an address needs no thread."""
    if getattr(loop.getaddrinfo, "__module__", None) not in _STOCK_RESOLVERS:
        found: _Found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    elif _is_address(host) or not threading.main_thread().is_alive():
        found = _get_address_info(host, port)  # from 3.12 on no thread starts while the interpreter exits
    else:
        found = await run_in_thread(partial(_get_address_info, host, port), _THREAD)
    return list(dict.fromkeys(_with_port(entry[4], port) for entry in found))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _get_address_info(host: str, port: int) -> _Found:
    return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)


def _with_port(address: SocketAddress | tuple[int, bytes], port: int) -> SocketAddress:
    """Keep host and port, and of an IPv6 link-local address the scope."""
    match address:
        case (str(host), _, flow_info, scope_id) if scope_id:
            return host, port, flow_info, scope_id
        case (host, *_):
            return str(host), port


async def canonical_names(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """Return the name that each address of a host has in the reverse zone, each once; without one the address itself.

    Source: `resolve_canonical_bootstrap_servers_only` of ClientUtils in Apache Kafka.
    """
    names = []
    for address in await look_up(loop, host, port):
        try:
            names.append(await _name_of(loop, address))
        except OSError:
            names.append(address[0])
    return list(dict.fromkeys(names))


async def _name_of(loop: asyncio.AbstractEventLoop, address: SocketAddress) -> str:
    if getattr(loop.getnameinfo, "__module__", None) not in _STOCK_RESOLVERS:
        name, _ = await loop.getnameinfo(address, socket.NI_NAMEREQD)
    else:
        name, _ = await run_in_thread(partial(socket.getnameinfo, address, socket.NI_NAMEREQD), _THREAD)
    return name


def interleaved(addresses: Sequence[SocketAddress]) -> list[SocketAddress]:
    """Return the addresses with the families in turn, beginning with that of the first (RFC 8305, section 4)."""
    of_first = [each for each in addresses if _is_ipv6(each) == _is_ipv6(addresses[0])]
    of_other = [each for each in addresses if _is_ipv6(each) != _is_ipv6(addresses[0])]
    pairs = zip_longest(of_first, of_other)
    return [each for pair in pairs for each in pair if each is not None]


def _is_ipv6(address: SocketAddress) -> bool:
    return ":" in address[0]


async def connect(loop: asyncio.AbstractEventLoop, make: Callable[[], ProtocolT], address: SocketAddress) -> ProtocolT:
    """Connect to an address of `look_up`, and return the protocol that `make` creates."""
    if len(address) == 2:  # noqa: PLR2004  # no scope
        _, protocol = await loop.create_connection(make, *address)
        return protocol
    connected = await _connect_socket(loop, address)
    try:
        _, protocol = await loop.create_connection(make, sock=connected)
    except BaseException:
        connected.close()
        raise
    return protocol


async def _connect_socket(loop: asyncio.AbstractEventLoop, address: SocketAddress) -> socket.socket:
    """Return a socket connected to an address with a scope, which `sock_connect` of uvloop drops."""
    connecting = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        error = connecting.connect_ex(address)
        if error == errno.EINPROGRESS:
            await _writable(loop, connecting)
            error = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except BaseException:
        connecting.close()
        raise
    if error:
        connecting.close()
        raise OSError(error, os.strerror(error))
    return connecting


async def _writable(loop: asyncio.AbstractEventLoop, connecting: socket.socket) -> None:
    writable = loop.create_future()
    loop.add_writer(connecting, lambda: None if writable.done() else writable.set_result(None))
    try:
        await writable
    finally:
        loop.remove_writer(connecting)


STAGGER_S: Final = 0.25  # "Connection Attempt Delay" of RFC 8305


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One address, or a name that a proxy resolves.

    Attributes:
        name: for errors; empty if there is nothing to tell it from.
        connect: connects to the address, with the protocol of a function.
    """

    name: str
    connect: Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


class Failed(NamedTuple):
    """One address that could not be connected to."""

    contender: Contender
    error: BaseException  # a foreign loop may raise CancelledError
    is_timeout: bool

    def reason(self, timeout_s: float) -> str:
        text = f"no connection within {timeout_s:.1f} s" if self.is_timeout else text_of(self.error)
        return f"{self.contender.name}: {text}" if self.contender.name else text


@dataclass(frozen=True, slots=True)
class Won(Generic[ProtocolT]):
    """The address that connected first.

    Attributes:
        protocol: of the caller, connected.
        deadline: end of the address's time-out, in seconds of the loop's clock.
    """

    contender: Contender
    protocol: ProtocolT
    deadline: float


class AddressRace(Generic[ProtocolT]):
    """Addresses that were not tried yet, or lost to another one; they start in the order of `contenders`."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        make: Callable[[], ProtocolT],
        *,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float = math.inf,
    ) -> None:
        self.failed: list[Failed] = []
        """Addresses that did not connect; the caller adds those that were of no use afterwards."""
        self._loop = loop
        self._make = make
        self._left = list(contenders)
        self._timeout_s = timeout_s

    async def winner(self) -> Won[ProtocolT] | None:
        """Return the first address that connects, which does not race again; None if none of them does."""
        heat = _Heat(self._loop, self._make, self._timeout_s)
        try:
            await heat.run(self._left)
        except BaseException:
            heat.drop_winner()
            raise
        finally:
            await heat.end()
        self.failed += heat.failed
        over = {heat.won_by, *(failed.contender for failed in heat.failed)}
        self._left = [each for each in self._left if each not in over]
        if heat.won_by is None:
            return None
        return Won(heat.won_by, cast("ProtocolT", heat.protocol), heat.started[heat.won_by] + self._timeout_s)

    @property
    def reasons(self) -> str:
        return "; ".join(failed.reason(self._timeout_s) for failed in self.failed)


def direct(loop: asyncio.AbstractEventLoop, addresses: Sequence[SocketAddress]) -> list[Contender]:
    """Return the contenders for addresses that are reached without a proxy."""

    def to(address: SocketAddress) -> Contender:
        return Contender(address[0], lambda make: connect(loop, make, address))

    return [to(address) for address in addresses]


def text_of(error: BaseException) -> str:
    """Return the reason of a failed attempt: the system's text for its errors, for others the class and text."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(text_of(each) for each in error.exceptions)
    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class _Heat(Generic[ProtocolT]):
    """One race, up to its winner."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], ProtocolT], timeout_s: float) -> None:
        self.won_by: Contender | None = None
        self.protocol: ProtocolT | None = None
        self.failed: list[Failed] = []
        self.started: dict[Contender, float] = {}
        self._loop = loop
        self._make = make
        self._timeout_s = timeout_s
        self._is_over = False
        self._transport: asyncio.Transport | None = None  # of the winner
        self._tasks: dict[Contender, asyncio.Task[None]] = {}

    async def run(self, contenders: list[Contender]) -> None:
        """Return when one has connected, or all have failed."""
        if len(contenders) == 1:  # without a task of its own, whose end takes another turn
            self.started[contenders[0]] = self._loop.time()
            await self._try(contenders[0])
            return
        for contender in contenders:
            self.started[contender] = self._loop.time()
            self._tasks[contender] = self._loop.create_task(self._try(contender))
            is_last = contender is contenders[-1]
            await self._wait(None if is_last else STAGGER_S, for_all=is_last)
            if self.won_by is not None:
                # Cancelled before its end, `create_connection` would close what it has just connected.
                await self._tasks[self.won_by]
                return

    async def _wait(self, timeout_s: float | None, *, for_all: bool) -> None:
        """Wait until the race is won, an address has failed or, `for_all`, all of them have."""
        while running := [task for task in self._tasks.values() if not task.done()]:
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not for_all or self.won_by is not None or not done:
                return

    async def _try(self, contender: Contender) -> None:
        timeout = asyncio.timeout(None if self._timeout_s == math.inf else self._timeout_s)
        try:
            async with timeout:
                await contender.connect(lambda: _StandIn(self._decide, contender))
        except (Exception, asyncio.CancelledError) as error:  # a loop may raise anything; the next address may work
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            is_timeout = isinstance(error, TimeoutError) and timeout.expired()
            self.failed.append(Failed(contender, error, is_timeout))

    def _decide(self, contender: Contender, transport: asyncio.Transport) -> asyncio.Protocol | None:
        if self._is_over or self.won_by is not None:
            return None
        self.won_by, self._transport = contender, transport
        self.protocol = self._make()
        return self.protocol

    def drop_winner(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    async def end(self) -> None:
        """Cancel the others, and wait until their sockets are closed."""
        self._is_over = True
        running = [task for task in self._tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


class _StandIn(asyncio.Protocol):
    """Protocol of a transport that may still lose the race."""

    def __init__(
        self, decide: Callable[[Contender, asyncio.Transport], asyncio.Protocol | None], contender: Contender
    ) -> None:
        self._decide = decide
        self._contender = contender

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast("asyncio.Transport", transport)
        protocol = self._decide(self._contender, connected)
        if protocol is None:
            connected.abort()
            return
        connected.set_protocol(protocol)
        protocol.connection_made(connected)
