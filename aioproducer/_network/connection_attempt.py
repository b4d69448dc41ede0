"""One attempt to connect to a node: its route, its addresses, TLS, and the handshake, within the set-up time-out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from aioproducer._network.address_race import AddressRace, Contender, Failed, Won, direct, text_of
from aioproducer._network.addresses import canonical_names, interleaved, look_up
from aioproducer._network.connection import BrokerConnection, with_label
from aioproducer._network.proxy import ProxyAuthenticationError, connect_through
from aioproducer._network.refusals import MOST_A_MINUTE, is_for_good
from aioproducer.errors import AuthenticationError, BrokerConnectionError, KafkaError, TlsError

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext
    from aioproducer._network.routes import Route
    from aioproducer._network.tls import TlsProtocol
    from aioproducer.cluster import Node

FoundT = TypeVar("FoundT")

_Resolve: TypeAlias = Callable[[asyncio.AbstractEventLoop, str, int], Awaitable[list[FoundT]]]


class ConnectionAttempt:
    """One attempt.

    Args:
        context: shared by all connections.
        node: to connect to; a negative id marks a bootstrap server.
        label: of the node, for errors.
        timeout_s: of each address, and of each lookup.
        number: of the attempt; each begins with the next address.
    """

    def __init__(self, context: NetworkContext, node: Node, *, label: str, timeout_s: float, number: int) -> None:
        self.host: str = node.host
        """The name that TLS and SASL check."""
        self.refusals: list[KafkaError] = []
        """Reasons of the addresses that refuse this client for good."""
        self._context = context
        self._node = node
        self._label = label
        self._timeout_s = timeout_s
        self._number = number
        self._is_any_silent = False  # of the addresses that were connected to
        self._lacks_credentials = False
        self._missing = ""  # what the handshake waits for, for the text of a time-out

    async def route(self) -> Route:
        """Return the way to the node; for a bootstrap server with a canonical name, `host` becomes that."""
        routes = self._context.settings.routes
        route = routes.to(self._node)
        if self._node.id >= 0 or not routes.uses_canonical_names or (route.proxy and route.proxy.resolves_names):
            return route
        names = await self._resolved(route, canonical_names)
        self.host = names[self._number % len(names)]
        return replace(route, host=self.host)

    async def open(self, route: Route, make: Callable[[], BrokerConnection]) -> BrokerConnection:
        """Return a connection that is ready.

        An address that refuses this client for good is followed by the others of the name: during a rolling change of
        certificates or passwords another broker accepts it. After ten refusals the rest waits for the next attempts.

        Raises:
            KafkaError: there is none; with the reason of each address, or that of the first refusal if no address that
                could be connected to did anything else.
        """
        tls = self._context.security.tls if self._context.security is not None else None
        if tls is not None:
            await tls.prepare()
        outermost: Callable[[], asyncio.Protocol] = make if tls is None else tls.wrap(make, self.host)
        contenders = await self._contenders(route)
        race = AddressRace(contenders, outermost, loop=self._context.loop, timeout_s=self._timeout_s)
        while len(self.refusals) < MOST_A_MINUTE and (won := await race.winner()) is not None:
            limit = asyncio.timeout_at(won.deadline)
            try:
                async with limit:
                    return await self._ready(won)
            except Exception as error:  # noqa: BLE001  # a loop may raise anything; the next address may work
                is_over = isinstance(error, TimeoutError) and limit.expired()
                race.failed.append(Failed(won.contender, self._noted(error, is_over=is_over), is_timeout=False))
        raise self._failure(race, route)

    def _noted(self, error: Exception, *, is_over: bool) -> Exception:
        """Return why an address that was connected to is of no use; raise what the other addresses do not change."""
        if is_for_good(error) and not self._lacks_credentials:
            self.refusals.append(cast("KafkaError", error))
            return error
        if isinstance(error, KafkaError):
            raise error  # its text names the broker and the reason
        self._is_any_silent = True
        return TimeoutError(f"{self._missing} within {self._timeout_s:.1f} s") if is_over else error

    def _failure(self, race: AddressRace[asyncio.Protocol], route: Route) -> KafkaError:
        if self.refusals and not self._is_any_silent:
            return self.refusals[0]
        text = f"cannot connect to {self._label}{route.note}: {race.reasons}"
        is_of_proxy = any(isinstance(failed.error, ProxyAuthenticationError) for failed in race.failed)
        return AuthenticationError(text) if is_of_proxy else BrokerConnectionError(text)

    async def _ready(self, won: Won[asyncio.Protocol]) -> BrokerConnection:
        connection = await self._established(won)
        try:
            await connection.ready
        except asyncio.CancelledError:
            self._missing = connection.missing
            connection.close(BrokerConnectionError("the handshake was not finished in time"))
            await asyncio.wait((connection.closed,))
            raise
        finally:
            self._lacks_credentials = connection.lacks_credentials
        if connection.error is not None:  # closed between its last response and this task's turn
            raise connection.error
        return connection

    async def _established(self, won: Won[asyncio.Protocol]) -> BrokerConnection:
        """Return the connection, behind the TLS handshake if there is one."""
        if isinstance(won.protocol, BrokerConnection):
            return won.protocol
        behind_tls = cast("TlsProtocol[BrokerConnection]", won.protocol)
        self._missing = "the port is open, but nothing has answered the TLS handshake there"
        try:
            return await behind_tls.established(again=won.contender.connect)
        except TlsError as error:
            raise with_label(self._label, error) from error.__cause__

    async def _contenders(self, route: Route) -> list[Contender]:
        """Return the addresses of a route, or the name that its proxy resolves."""
        loop, proxy, port = self._context.loop, route.proxy, route.port
        if proxy is not None and proxy.resolves_names:
            return [Contender("", partial(connect_through, loop, proxy, host=route.host, port=port))]
        addresses = interleaved(await self._resolved(route, look_up))
        first = self._number % len(addresses)
        addresses = addresses[first:] + addresses[:first]
        if proxy is None:
            return direct(loop, addresses)
        return [
            Contender(address[0], partial(connect_through, loop, proxy, host=address[0], port=port))
            for address in addresses
        ]

    async def _resolved(self, route: Route, resolve: _Resolve[FoundT]) -> list[FoundT]:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                async with self._context.look_up_turns:
                    await asyncio.sleep(0)
                found = await resolve(self._context.loop, route.host, route.port)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise self._unresolved(route, f" within {self._timeout_s:.1f} s") from error
            raise self._unresolved(route, f": {text_of(error)}") from error
        if not found:
            raise self._unresolved(route, ": the name has no address")
        return found

    def _unresolved(self, route: Route, why: str) -> BrokerConnectionError:
        if self._node.id < 0 or route.host != self._node.host:
            return BrokerConnectionError(f"cannot resolve {route.host!r}{route.note}{why}")
        return BrokerConnectionError(
            f"{self._label}, as the cluster advertises it, cannot be resolved here{why}; the broker's "
            "advertised.listeners must have a name that is known here, or address_map another address for it"
        )
