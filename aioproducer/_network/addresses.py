"""Resolves names in a daemon thread, and connects to one of the addresses.

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
import os
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, TypeAlias, TypeVar

from aioproducer._threads.off_loop import run_in_thread

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""(address, port), and for IPv6 flow info and scope id too."""

_Found: TypeAlias = Sequence[tuple[int, int, int, str, SocketAddress | tuple[int, bytes]]]  # of `getaddrinfo`

_THREAD: Final = "aioproducer-lookup"
_STOCK_RESOLVERS: Final = frozenset({"asyncio.base_events", "uvloop.loop"})


async def look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of a host, each once, in the resolver's order.

    Args:
        host: a name, or an address, which needs no thread.
    """
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
