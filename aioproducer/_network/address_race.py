"""Connects to several addresses, one started 250 ms after another; the first that connects wins (RFC 8305).

Only the transport that wins gets a protocol of the caller's: a transport begins with a stand-in, which decides in its
`connection_made`. There, and not in the task that waits: a task runs a turn later, and would lose what the other end
says in that turn.

An address has its own time-out, which goes on after it has won: `Won.deadline` is that of its handshake.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

from aioproducer._network.addresses import connect
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from aioproducer._network.addresses import SocketAddress

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)

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
    """Addresses that were not tried yet, or lost to another one.

    Args:
        contenders: in the order of their starts.
        make: makes the protocol of an address that wins.
        loop: to connect on.
        timeout_s: of each address.
    """

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
        limit = asyncio.timeout(None if self._timeout_s == math.inf else self._timeout_s)
        try:
            async with limit:
                await contender.connect(lambda: _StandIn(self._decide, contender))
        except (Exception, asyncio.CancelledError) as error:  # a loop may raise anything; the next address may work
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            is_timeout = isinstance(error, TimeoutError) and limit.expired()
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
