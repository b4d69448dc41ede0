"""Nodes by id, and the connection to each.

Nodes known from metadata have their own ids. The bootstrap addresses are nodes too, with the ids -1, -2, ...: they
are asked until metadata names real ones, and again when none of those can be reached (KIP-899), or when the client
starts again from them (KIP-1102). A bootstrap connection to an address at which metadata says a node listens becomes
that node's; the others close.

A node has at most one connection, made when wanted, and made again after a growing pause:

    IDLE ──connect()──► CONNECTING ──handshake done──► CONNECTED
     ▲                      │ failed                       │ lost
     │                      ▼                              │
     └──connect() after── BACKING OFF ◄────────────────────┘
        the pause

The pause grows with every attempt after which the broker answered nothing but the handshake: a broker that takes
connections and drops them as soon as it is asked for something is as good as down. Every address of the node's
name is tried, each with its own time-out (`address_race`), and the next attempt begins with the next address.

Source: ClusterConnectionStates and NetworkClient in Apache Kafka; KIP-144 (backoff), KIP-302 and KIP-602 (all
addresses), KIP-601 (setup time-out), KIP-219 (throttling).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer._network.address_race import text_of
from aioproducer._network.connection import BrokerConnection, IdleConnectionError
from aioproducer._network.connection_attempt import ConnectionAttempt
from aioproducer._network.places import place_text
from aioproducer._network.refusals import is_for_good, is_refusal
from aioproducer._network.sasl_connection import SaslConnection
from aioproducer._protocol.error_codes import RENEGOTIATE
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer.errors import BrokerConnectionError, KafkaError, TlsClosedError, TlsRefusedError

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext, TimerHandle
    from aioproducer._protocol.messages import Api
    from aioproducer._protocol.primitives import Response
    from aioproducer.cluster import Node

CLOSES_THAT_REFUSE: Final = 3
"""As many closes in the TLS handshake, one after another, are those of a listener without TLS, not of a restart."""
LONGEST_THROTTLE_MS: Final = 60_000  # longer throttle times are cut to this


class NodeConnection:
    """One node, and its connection; see the diagram above.

    `disconnect` closes the connection at once, and `connect` may make another. `retire` closes it when its requests
    have ended. `close` closes it at once and for good, and waits.

    Args:
        node: where to connect to; a negative id marks a bootstrap address.
        context: shared by all connections.
        on_change: called with this object when it is connected, has failed or lost its connection, or when its throttle
            time is over.
    """

    throttled_since = throttled_until = 0.0  # monotonic seconds; valid while `is_throttled`
    failed_since: float | None = None  # monotonic seconds; None while connected, and before the first failure

    def __init__(self, node: Node, context: NetworkContext, on_change: Callable[[NodeConnection], None]) -> None:
        settings = context.settings
        self.node = node
        self.connection: BrokerConnection | None = None  # set while the connection is ready
        self.connection_id = 0  # number of the last connection; never used twice, 0 before the first
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
    def is_ready(self) -> bool:
        return self.connection is not None and not self.is_throttled and self.connection.can_send

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
        self._context.counters_by_node.move(self.node.id, node.id)
        self.node, self.host = node, node.host
        if self.connection is not None:
            self.connection.label = _label(node)

    def retire(self) -> None:
        """Make no further attempt, and close when no request is in flight."""
        self._cancel_attempt()
        if self.connection is not None:
            self.connection.retire(IdleConnectionError("no longer needed"))

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
        return f"<NodeConnection {_label(self.node)} {state} failures={self._failures_in_a_row}>"

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
        name = f"aioproducer-connect | {self._context.client_id} | {_label(self.node)}"
        self._task = self._context.loop.create_task(self._connect(), name=name)

    async def _connect(self) -> None:
        try:
            self._take(await self._open())
        except KafkaError as error:
            self._fail_attempt(error)
        except (Exception, asyncio.CancelledError) as error:  # of a foreign resolver, loop or protocol
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            failure = BrokerConnectionError(f"cannot connect to {_label(self.node)}: {text_of(error)}")
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
        attempt = ConnectionAttempt(
            self._context,
            self.node,
            label=_label(self.node),
            timeout_s=self._setup_timeout.delay_s(self._failed_attempts_in_a_row),
            number=self._attempts,
        )
        self._attempts += 1
        self._refused = []
        route = await attempt.route()
        self.host = attempt.host
        try:
            return await attempt.open(route, self._connection_factory())
        finally:
            self._refused = attempt.refusals

    def _connection_factory(self) -> Callable[[], BrokerConnection]:
        context, label = self._context, _label(self.node)
        sasl = None if context.security is None else context.security.sasl
        if sasl is None:
            return partial(BrokerConnection, context, label, self._lose)
        return partial(SaslConnection, context, label, self._lose, place=self.place, sasl=sasl)

    def _take(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.connection_id = next(self._context.connection_ids)
        self._failed_attempts_in_a_row = 0
        self.last_error = self.failed_since = None
        self._context.refusals.end(self.place)
        self._context.features.take(connection.versions.features)
        self._context.log.debug("broker_connected", node_id=self.node.id, address=_address(self.node))

    def _lose(self, connection: BrokerConnection, error: KafkaError) -> None:
        if connection is not self.connection:
            return  # lost during its handshake: `_connect` reports that
        self.connection = None
        if connection.answers:
            self._failures_in_a_row = 0
            self._context.refusals.answered(connection.label)
            self._context.refusals.end(self.place)
        if self._is_closed or isinstance(error, IdleConnectionError):
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

    def _end_throttle(self, _now: float) -> None:
        self._throttle_timer = None
        self.is_throttled = False
        if self.connection is not None:
            self.connection.end_pause()
        if self.is_open:
            self._on_change(self)  # `NodeSelector.reach` may wait for it


class ConnectionPool:
    """The connections of all nodes, by node id; bootstrap addresses have negative ids.

    `close` closes them all and waits; `abandon` does not wait, and works without a running loop.
    """

    def __init__(self, bootstrap: Sequence[Node], context: NetworkContext) -> None:
        self._context = context
        self._node_connections: dict[int, NodeConnection] = {}
        self.get = self._node_connections.get  # by node id; None if metadata does not name the node
        self._leaving: set[NodeConnection] = set()  # not in `_node_connections` any more, requests still in flight
        self._uses_known = True
        self._is_closed = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        for node in bootstrap:
            self._add(node)

    def candidates(self) -> list[NodeConnection]:
        """Return the nodes for requests that any node can answer; none after `close`."""
        if self._is_closed:
            return []
        known = self.known() if self._uses_known else []
        if known and not all(node_connection.has_failed for node_connection in known):
            return known
        return known + self.bootstrap()

    def known(self) -> list[NodeConnection]:
        return [
            each for each in list(self._node_connections.values()) if each.node.id >= 0
        ]  # a copy: other threads read it

    def bootstrap(self) -> list[NodeConnection]:
        return (
            []
            if self._is_closed
            else [node_connection for node_connection in self._node_connections.values() if node_connection.node.id < 0]
        )

    def retries_failed_node(self) -> bool:
        return any(node_connection.has_failed and node_connection.is_connecting for node_connection in self.known())

    def update(self, nodes: Mapping[int, Node]) -> None:
        """Take the nodes that metadata names, by id.

        Nodes that are gone or have moved are dropped. A new node adopts a bootstrap connection to its address; the
        other bootstrap connections retire.
        """
        if not nodes:  # no metadata yet; a response without nodes is refused by the refresher
            return
        for node_id, node_connection in list(self._node_connections.items()):
            if node_id >= 0 and not _is_same_place(nodes.get(node_id), node_connection.node):
                self._drop(node_connection)
        adoptable = {
            node_connection.place: node_connection
            for node_connection in reversed(self.bootstrap())
            if node_connection.is_open or node_connection.is_connecting
        }  # reversed: of two connections to one address the first is taken
        for node in nodes.values():
            if node.id not in self._node_connections:
                self._adopt_or_add(node, adoptable.pop((node.host, node.port), None))
        for node_connection in self._node_connections.values():
            if node_connection.node.id < 0 and self._uses_known:
                node_connection.retire()

    def use_bootstrap_only(self) -> None:
        """Make only the bootstrap addresses candidates until `use_known`."""
        self._uses_known = False
        self._announce()

    def use_known(self) -> None:
        self._uses_known = True

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until any node is connected or has failed, or a connection is lost, at most `timeout_s`."""
        future: asyncio.Future[None] = self._context.loop.create_future()
        self._waiting[future] = None
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(future, None)  # unless a change in the same turn has removed it

    async def close(self, error: KafkaError) -> None:
        """Close all connections, and wait until they are closed."""
        self._is_closed = True
        await asyncio.gather(
            *(node_connection.close(error) for node_connection in (*self._node_connections.values(), *self._leaving))
        )

    def abandon(self) -> None:
        """Close all connections without waiting, also if the loop is closed."""
        self._is_closed = True
        for node_connection in (*self._node_connections.values(), *self._leaving):
            with contextlib.suppress(RuntimeError):  # the loop is closed: its tasks cannot be cancelled
                node_connection.retire()
            node_connection.disconnect(IdleConnectionError("the producer cannot continue"))

    def _add(self, node: Node) -> None:
        self._node_connections[node.id] = NodeConnection(node, self._context, self._note_change)

    def _adopt_or_add(self, node: Node, node_connection: NodeConnection | None) -> None:
        if node_connection is None:
            self._add(node)
            return
        bootstrap = node_connection.node
        node_connection.become(node)
        self._add(bootstrap)  # a new one for the bootstrap address
        self._node_connections[node.id] = node_connection

    def _drop(self, node_connection: NodeConnection) -> None:
        del self._node_connections[node_connection.node.id]
        node_connection.retire()
        if node_connection.connection is not None:
            self._leaving.add(node_connection)

    def _note_change(self, node_connection: NodeConnection) -> None:
        if not node_connection.is_open:
            self._leaving.discard(node_connection)
        if (
            node_connection.has_failed
            and node_connection.node.id >= 0
            and self._node_connections.get(node_connection.node.id) is node_connection
        ):
            self._context.events.node_failed()
        self._announce()

    def _announce(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._context.events.wake()

    def __repr__(self) -> str:
        return f"<ConnectionPool {len(self._node_connections)} waiting={len(self._waiting)}>"


def _is_same_place(node: Node | None, other: Node) -> bool:
    return node is not None and (node.host, node.port) == (other.host, other.port)


def _address(node: Node) -> str:
    return place_text(node.host, node.port)


def _label(node: Node) -> str:
    return f"bootstrap broker {_address(node)}" if node.id < 0 else f"broker {node.id} at {_address(node)}"
