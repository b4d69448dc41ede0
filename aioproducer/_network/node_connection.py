"""One node of the cluster, and the connection to it, made when wanted and made again after a growing pause.

    IDLE ──connect()──► CONNECTING ──handshake done──► CONNECTED
     ▲                      │ failed                       │ lost
     │                      ▼                              │
     └──connect() after── BACKING OFF ◄────────────────────┘
        the pause

The pause grows with every attempt after which the broker answered nothing but the handshake: a broker that takes
connections and drops them as soon as it is asked for something is as good as down. Every address of the node's
name is tried, each with its own time-out (`addresses.py`), and the next attempt begins with the next address.

Source: ClusterConnectionStates and NetworkClient in Apache Kafka; KIP-144 (backoff), KIP-302 and KIP-602 (all
addresses), KIP-601 (setup time-out), KIP-219 (throttling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from aioproducer._network.addresses import (
    AddressRace,
    Contender,
    Failed,
    Won,
    canonical_names,
    direct,
    interleaved,
    look_up,
    place_text,
    text_of,
)
from aioproducer._network.connection import BrokerConnection, ClosedHereError, with_label
from aioproducer._network.proxy import ProxyAuthenticationError, connect_through
from aioproducer._network.refusals import MOST_A_MINUTE, is_for_good, is_refusal
from aioproducer._network.sasl_connection import SaslConnection
from aioproducer._protocol.error_codes import RENEGOTIATE
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    TlsClosedError,
    TlsError,
    TlsRefusedError,
)
from aioproducer.explanation import WaitReason, Why

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, TimerHandle
    from aioproducer._network.proxy import Proxy
    from aioproducer._network.routes import Route
    from aioproducer._network.tls import TlsProtocol
    from aioproducer._protocol.messages import Api
    from aioproducer._protocol.primitives import Response
    from aioproducer.cluster import Node

FoundT = TypeVar("FoundT")

_Resolve: TypeAlias = Callable[[asyncio.AbstractEventLoop, str, int], Awaitable[list[FoundT]]]

CLOSES_THAT_REFUSE: Final = 3
"""As many closes in the TLS handshake, one after another, are those of a listener without TLS, not of a restart."""
LONGEST_THROTTLE_MS: Final = 60_000  # longer throttle times are cut to this
BUSY_S: Final = 1.0  # a node that has answered nothing for longer is called silent


class NodeConnection:  # noqa: PLR0904  # all that is known of a node, and done with it
    """One node, and its connection; see the diagram above.

    `disconnect` closes the connection at once, and `connect` may make another. `retire` closes it when its requests
    have ended. `close` closes it at once and for good, and waits.

    Args:
        node: where to connect to; a negative id marks a bootstrap address.
        on_change: called with this object when it is connected, has failed or lost its connection, or when its throttle
            time is over.
    """

    throttled_since = throttled_until = 0.0  # monotonic seconds; valid while `is_throttled`
    failed_since: float | None = None  # monotonic seconds; None while connected, and before the first failure

    def __init__(self, node: Node, context: NetworkContext, on_change: Callable[[NodeConnection], None]) -> None:
        settings = context.settings
        self.node = node
        self.connection: BrokerConnection | None = None  # set while the connection is ready
        self.last_error: KafkaError | None = None  # reason of the last failure; None while connected
        self.retry_at = 0.0  # earliest time of the next attempt, monotonic seconds
        self.is_throttled = False
        self.failures = 0  # number of attempts and connections that failed
        self.host = node.host  # that TLS and SASL check; of a bootstrap server its canonical name, if asked for
        self._context = replace(context, counters=context.counters_by_node.of(node.id))
        self._on_change = on_change
        self._backoff = ExponentialBackoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, random=context.random
        )
        self._setup_timeout = ExponentialBackoff(
            settings.connection_setup_timeout_ms,
            settings.connection_setup_timeout_max_ms,
            random=context.random,
        )
        self.attempt: ConnectionAttempt | None = None  # set while one is under way
        self._task: asyncio.Task[None] | None = None
        self._cancelled: set[asyncio.Task[None]] = set()  # attempts that still close their sockets
        self._timer: TimerHandle | None = None
        self._throttle_timer: TimerHandle | None = None
        self._attempts = 0
        self._refused: list[KafkaError] = []  # refusals of addresses in the last attempt
        # Failed attempts and lost connections since a broker last answered: they lengthen the pause.
        self._failures_in_a_row = 0
        # Failed attempts since the last connection, refusals apart: they lengthen the set-up time-out, which a lost
        # connection does not. Source: ClusterConnectionStates.disconnected and authenticationFailed.
        self._failed_attempts_in_a_row = 0
        self._is_closed = False

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.node.port

    @property
    def ready_connection(self) -> BrokerConnection | None:
        """The connection, if it takes a request now."""
        connection = self.connection
        if connection is None or self.is_throttled or not connection.can_send:
            return None
        return connection

    @property
    def is_open(self) -> bool:
        """Whether there is a usable connection, though it may be busy."""
        return self.connection is not None and self.connection.is_open

    @property
    def in_flight(self) -> int:
        return self.connection.in_flight if self.connection is not None else 0

    @property
    def is_connecting(self) -> bool:
        """Whether an attempt is under way, or scheduled after the pause."""
        return self._is_trying or self._timer is not None

    @property
    def _is_trying(self) -> bool:
        # A task that is cancelled before its first step never runs, so it cannot reset `_task` itself.
        return self._task is not None and not self._task.done()

    @property
    def has_failed(self) -> bool:
        return self.connection is None and self.last_error is not None

    @property
    def has_failed_for_good(self) -> bool:
        return is_for_good(self.last_error)

    @property
    def trouble(self) -> KafkaError | None:
        """The reason why the node is not sent to: not connected, or throttled; None if there is none."""
        if self.is_throttled:
            return KafkaError(self._throttle_text(self._context.loop.time()))
        return self.last_error

    @property
    def blocked(self) -> Why | None:
        """The reason why the node takes no request now; None if it takes one."""
        now, connection = self._context.loop.time(), self.connection
        if self.is_throttled:
            text = self._throttle_text(now)
            return Why(WaitReason.THROTTLED, self.throttled_since, self.throttled_until, text)
        if connection is None or not connection.is_open:
            until = self.retry_at if self.retry_at > now else None
            text = str(self.last_error or self.missing or "it is not connected yet")
            return Why(WaitReason.CONNECTING, self.failed_since, until, text)
        if connection.can_send:
            return None
        silent_s = connection.silent_for_s(now)
        if silent_s < BUSY_S:
            return Why(WaitReason.IN_FLIGHT_FULL)
        return Why(WaitReason.IN_FLIGHT_FULL, now - silent_s, detail=connection.unanswered(now))

    @property
    def missing(self) -> str:
        """The step of the attempt to connect, or the response, that is waited for; empty if there is none."""
        if self.connection is not None:
            return self.connection.unanswered(self._context.loop.time())
        return "" if self.attempt is None else self.attempt.missing

    def connect(self) -> None:
        """Connect unless connected or connecting; after a failure, when its pause is over."""
        if self._is_closed or self.connection is not None or self.is_connecting:
            return
        self.retry_at = max(self.retry_at, self._context.refusals.not_before(self.place))
        if self._context.loop.time() < self.retry_at:
            self._timer = self._context.schedule(self.retry_at, self._start)
        else:
            self._start(0.0)
        if self.has_failed:
            self._context.events.node_tried_again()

    def apply_throttle_and_versions(self, response: Response, api: Api, now: float) -> None:
        """Apply a response's effects on the connection: throttling (KIP-219), or new versions on a new connection.

        Must be called where the response is decoded: the sender may run before a task that waits for the response.
        """
        # Here, for every response alike: a request type that handles pauses and versions by itself forgets one of them.
        if response.throttle_time_ms > 0:
            self._throttle(response.throttle_time_ms, now)
        if self.connection is not None and not RENEGOTIATE.isdisjoint(response.error_codes):
            text = f"the broker no longer speaks this version of {api.name}: a new connection negotiates versions"
            # Not closed at once: without idempotence, each response lost with it would become a duplicate.
            self.connection.retire(BrokerConnectionError(text))

    def become(self, node: Node) -> None:
        """Let the connection to a bootstrap address be that of the node that listens there."""
        self.node, self.host = node, node.host
        # What was counted until now stays in the row of the address: a total never falls.
        self._context = replace(self._context, counters=self._context.counters_by_node.of(node.id))
        if self.connection is not None:
            self._assign(self.connection)

    def retire(self) -> None:
        """Make no further attempt, and close when no request is in flight."""
        self._cancel_attempt()
        if self.connection is not None:
            self.connection.retire(ClosedHereError("no longer needed"))

    def disconnect(self, error: KafkaError) -> None:
        if self.connection is not None:
            self.connection.close(error)

    async def close(self, error: KafkaError) -> None:
        self._is_closed = True
        self._cancel_attempt()
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        if self._cancelled:
            await asyncio.wait(self._cancelled)
        if self.connection is not None:
            connection = self.connection
            connection.close(error)
            await asyncio.wait((connection.closed,))  # cancelling this wait leaves the future alone

    def __repr__(self) -> str:
        state = "connected" if self.connection else "connecting" if self._is_trying else "not connected"
        return f"<NodeConnection {label_of(self.node)} {state} failures={self._failures_in_a_row}>"

    def _cancel_attempt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._cancelled.add(self._task)
            self._task.add_done_callback(self._cancelled.discard)
        self._task = None

    def _start(self, _now: float) -> None:
        self._timer = None
        refusals, now = self._context.refusals, self._context.loop.time()
        if now < refusals.turn_ends(self.place):
            self._timer = self._context.schedule(refusals.turn_ends(self.place), self._start)
            return
        refusal = refusals.error(self.place)
        if refusal is not None and now < refusals.not_before(self.place):  # another connection has met it meanwhile
            self._note_failure(refusal.fresh())
            self._on_change(self)
            return
        refusals.begin(self.place, now)
        name = f"aioproducer-connect | {self._context.client_id} | {label_of(self.node)}"
        self._task = self._context.loop.create_task(self._connect(), name=name)

    async def _connect(self) -> None:
        try:
            self._take(await self._open())
        except KafkaError as error:
            self._fail_attempt(error)
        except (Exception, asyncio.CancelledError) as error:  # of a foreign resolver, loop or protocol
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                if self._task is task:  # not by `_cancel_attempt`: all tasks were, and the sender may go on
                    self._task = None
                    self._on_change(self)
                raise
            failure = BrokerConnectionError(f"cannot connect to {label_of(self.node)}: {text_of(error)}")
            failure.__cause__ = error
            self._fail_attempt(failure)
        finally:
            if self._task is asyncio.current_task():  # another attempt may have begun while this one was cancelled
                self._task = None
        self._on_change(self)

    def _fail_attempt(self, error: KafkaError) -> None:
        self._context.counters.connection_failures += 1
        if isinstance(error, TlsClosedError) and self._failures_in_a_row >= CLOSES_THAT_REFUSE - 1:
            cause, error = error.__cause__, TlsRefusedError(str(error))
            error.__cause__ = cause
        refused = [each for each in self._refused if is_refusal(each)]
        if refused or is_refusal(error):
            context, reason = self._context, error if is_refusal(error) else None
            now, addresses = context.loop.time(), max(1, len(refused))
            context.refusals.note(self.place, now, reason, random=context.random, addresses=addresses)
        if not is_refusal(error):
            self._failed_attempts_in_a_row += 1
        self._note_failure(error)

    async def _open(self) -> BrokerConnection:
        attempt = self.attempt = ConnectionAttempt(
            self._context,
            self.node,
            label=label_of(self.node),
            timeout_s=self._setup_timeout.delay_s(self._failed_attempts_in_a_row),
            number=self._attempts,
        )
        self._attempts += 1
        self._refused = []
        try:
            route = await attempt.route()
            self.host = attempt.host
            return await attempt.open(route, self._connection_factory())
        finally:
            self._refused = attempt.refusals
            if self.attempt is attempt:  # another one may have begun while this one was cancelled
                self.attempt = None

    def _connection_factory(self) -> Callable[[], BrokerConnection]:
        context, label = self._context, label_of(self.node)
        sasl = None if context.security is None else context.security.sasl
        if sasl is None:
            return partial(BrokerConnection, context, label, self._lose)
        return partial(SaslConnection, context, label, self._lose, place=self.place, sasl=sasl)

    def _assign(self, connection: BrokerConnection) -> None:
        """Let a connection have the name and the counters of this node, under whichever it was begun."""
        connection.label = label_of(self.node)
        connection.count_in(self._context)

    def _take(self, connection: BrokerConnection) -> None:
        self._assign(connection)
        self.connection = connection
        connection.number = next(self._context.connection_ids)
        self._failed_attempts_in_a_row = 0
        self.last_error = self.failed_since = None
        self._context.refusals.end(self.place)
        self._context.features.take(connection.versions.features)
        self._context.log.debug("broker_connected", node_id=self.node.id, address=_address(self.node))

    def _lose(self, connection: BrokerConnection, error: KafkaError) -> None:
        if connection is not self.connection:
            return  # lost during its handshake: `_connect` reports that
        self.connection = None
        if connection.responses:
            self._failures_in_a_row = 0
            self._context.refusals.answered(connection.label)
            self._context.refusals.end(self.place)
        if self._is_closed or isinstance(error, ClosedHereError):
            self._context.log.debug("connection_closed", node_id=self.node.id, reason=str(error))
        else:
            self._note_failure(error)
        self._on_change(self)

    def _note_failure(self, error: KafkaError) -> None:
        delay_s = self._backoff.delay_s(self._failures_in_a_row)
        self._failures_in_a_row += 1
        self.failures += 1
        now = self._context.loop.time()
        self.retry_at = now + delay_s
        self.failed_since = now if self.failed_since is None else self.failed_since
        self.last_error = error
        log = self._context.log
        write = log.warning if self._failures_in_a_row == 1 else log.debug  # one warning per outage
        write("broker_connection_failed", node_id=self.node.id, reason=str(error), failures=self._failures_in_a_row)

    def _throttle(self, throttle_ms: int, now: float) -> None:
        """Send nothing for the time that the broker asks for; requests in flight wait for the broker.

        A shorter throttle time does not end a longer one. Source: ClusterConnectionStates.throttle.
        """
        until = now + min(throttle_ms, LONGEST_THROTTLE_MS) / 1000
        if self._throttle_timer is not None:
            if until <= self.throttled_until:
                return
            self._throttle_timer.cancel()
        if not self.is_throttled:
            self.throttled_since = now
        self.is_throttled, self.throttled_until = True, until
        self._throttle_timer = self._context.schedule(until, self._end_throttle)
        if self.connection is not None:
            self.connection.pause_until(until)

    def _throttle_text(self, now: float) -> str:
        return f"it throttles this client, for another {self.throttled_until - now:.1f} s"

    def _end_throttle(self, _now: float) -> None:
        self._throttle_timer = None
        self.is_throttled = False
        if self.connection is not None:
            self.connection.end_pause()
        if self.is_open:
            self._on_change(self)  # `NodeSelector.reach` may wait for it


class ConnectionAttempt:
    """One attempt to connect to a node: its route, its addresses, TLS, and the handshake, within the set-up time-out.

    Args:
        node: to connect to; a negative id marks a bootstrap server.
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
        self._missing = ""
        self._connection: BrokerConnection | None = None  # whose handshake is under way

    @property
    def missing(self) -> str:
        """Step that the attempt waits for now, for the text of a time-out."""
        return self._missing if self._connection is None else self._connection.missing

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
            self._missing = "the files and passwords of the ssl_ options have not been read"
            await tls.prepare()
        outermost: Callable[[], asyncio.Protocol] = make if tls is None else tls.wrap(make, self.host)
        contenders = await self._contenders(route)
        names = ", ".join(each.name for each in contenders)
        silent = self._missing = f"nothing has answered at {names or 'its address'}, as behind a firewall"
        race = AddressRace(contenders, outermost, loop=self._context.loop, timeout_s=self._timeout_s)
        while len(self.refusals) < MOST_A_MINUTE and (won := await race.winner()) is not None:
            timeout = asyncio.timeout_at(won.deadline)
            try:
                async with timeout:
                    return await self._ready(won)
            except Exception as error:  # noqa: BLE001  # a loop may raise anything; the next address may work
                is_over = isinstance(error, TimeoutError) and timeout.expired()
                race.failed.append(Failed(won.contender, self._noted(error, is_over=is_over), is_timeout=False))
                self._connection, self._missing = None, silent
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
        connection = self._connection = await self._established(won)
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
            return [Contender("", self._through(proxy, route.host, port))]
        addresses = interleaved(await self._resolved(route, look_up))
        first = self._number % len(addresses)
        addresses = addresses[first:] + addresses[:first]
        if proxy is None:
            return direct(loop, addresses)
        return [Contender(address[0], self._through(proxy, address[0], port)) for address in addresses]

    def _through(
        self, proxy: Proxy, host: str, port: int
    ) -> Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]:
        def note(missing: str) -> None:
            self._missing = missing

        return partial(connect_through, self._context.loop, proxy, host=host, port=port, note=note)

    async def _resolved(self, route: Route, resolve: _Resolve[FoundT]) -> list[FoundT]:
        timeout = asyncio.timeout(self._timeout_s)
        self._missing = f"the name {route.host!r} has not been resolved: no name server has answered"
        try:
            async with timeout:
                async with self._context.look_up_turns:
                    await asyncio.sleep(0)
                found = await resolve(self._context.loop, route.host, route.port)
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout.expired():
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


def _address(node: Node) -> str:
    return place_text(node.host, node.port)


def label_of(node: Node) -> str:
    """Return how errors name a broker."""
    return f"bootstrap broker {_address(node)}" if node.id < 0 else f"broker {node.id} at {_address(node)}"
