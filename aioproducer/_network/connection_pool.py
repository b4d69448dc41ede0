"""Nodes by id, and the choice of a node for requests that any broker can answer.

Nodes known from metadata have their own ids. The bootstrap addresses are nodes too, with the ids -1, -2, ...: they
are asked until metadata names real ones, and again when none of those can be reached (KIP-899), or when the client
starts again from them (KIP-1102). A bootstrap connection to an address at which metadata says a node listens becomes
that node's; the others close.

Any broker means the least loaded one, or the first that can be reached. It may be stopped, or busy for half a minute
with earlier requests of the connection, which looks like a response that is about to come. So after a second without a
response the next broker is asked as well, and the first response counts.

Source: NetworkClient.leastLoadedNode in Apache Kafka, and KIP-899. Kafka's clients notice a stalled connection only
after `request.timeout.ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from aioproducer._network.connection import ClosedHereError
from aioproducer._network.node_connection import NodeConnection
from aioproducer.errors import BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext
    from aioproducer.cluster import Node

ResponseT = TypeVar("ResponseT")

PATIENCE_S: Final = 1.0
_REASONS_SHOWN: Final = 3
_HEDGE_S: Final = 1.0  # after this time without a connection another node is tried as well
_SUSPICIOUS_SILENCE_S: Final = 1.0  # a node whose oldest request has waited this long is asked last


class ConnectionPool:
    """The connections of all nodes, by node id; bootstrap addresses have negative ids.

    `close` closes them all and waits; `abandon` does not wait, and works without a running loop.
    """

    def __init__(self, bootstrap: Sequence[Node], context: NetworkContext) -> None:
        self._context = context
        self.nodes: dict[int, NodeConnection] = {}  # by id; without those that metadata no longer names
        self._coordinators: set[int] = set()  # nodes that only FindCoordinator names
        self._leaving: set[NodeConnection] = set()  # not in `nodes` any more, requests still in flight
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
        copy = list(self.nodes.values())  # other threads read it
        return [each for each in copy if each.node.id >= 0]

    def bootstrap(self) -> list[NodeConnection]:
        if self._is_closed:
            return []
        return [each for each in self.nodes.values() if each.node.id < 0]

    def retries_failed_node(self) -> bool:
        return any(node_connection.has_failed and node_connection.is_connecting for node_connection in self.known())

    def update(self, nodes: Mapping[int, Node]) -> None:
        """Take the nodes that metadata names, by id.

        Nodes that are gone or have moved are dropped, but not a coordinator in use that metadata never named. A new
        node adopts a bootstrap connection to its address; the other bootstrap connections retire.
        """
        if not nodes:  # no metadata yet; a response without nodes is refused by the refresher
            return
        self._coordinators -= nodes.keys()
        for node_id, node_connection in list(self.nodes.items()):
            if node_id >= 0 and not self._is_kept(node_connection, nodes.get(node_id)):
                self._drop(node_connection)
        found = [each for each in reversed(self.bootstrap()) if each.is_open or each.is_connecting]
        adoptable = {each.place: each for each in found}  # reversed: of two to one address the first is taken
        for node in nodes.values():
            if node.id not in self.nodes:
                self._adopt_or_add(node, adoptable.pop((node.host, node.port), None))
        for node_connection in self.nodes.values():
            if node_connection.node.id < 0 and self._uses_known:
                node_connection.retire()

    def add_coordinator(self, node: Node) -> NodeConnection | None:
        """Return the connection to a coordinator, at its own address if metadata does not name it.

        Returns:
            None if there is no address either.
        """
        node_connection = self.nodes.get(node.id)
        if not node.is_valid or self._is_closed:
            return node_connection
        if node_connection is not None:
            if node.id not in self._coordinators or node_connection.place == (node.host, node.port):
                return node_connection
            self._drop(node_connection)  # it has moved
        self._coordinators.add(node.id)
        self._add(node)
        return self.nodes[node.id]

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
        await asyncio.gather(*(each.close(error) for each in (*self.nodes.values(), *self._leaving)))

    def abandon(self) -> None:
        """Close all connections without waiting, also if the loop is closed."""
        self._is_closed = True
        for node_connection in (*self.nodes.values(), *self._leaving):
            with contextlib.suppress(RuntimeError):  # the loop is closed: its tasks cannot be cancelled
                node_connection.retire()
            node_connection.disconnect(ClosedHereError("the producer cannot continue"))

    def _is_kept(self, node_connection: NodeConnection, named: Node | None) -> bool:
        """Whether metadata leaves a node where it is; `named` is what metadata says of it."""
        if named is None:
            is_in_use = node_connection.is_open or node_connection.is_connecting
            return is_in_use and node_connection.node.id in self._coordinators
        return (named.host, named.port) == node_connection.place

    def _add(self, node: Node) -> None:
        self.nodes[node.id] = NodeConnection(node, self._context, self._note_change)

    def _adopt_or_add(self, node: Node, node_connection: NodeConnection | None) -> None:
        if node_connection is None:
            self._add(node)
            return
        bootstrap = node_connection.node
        node_connection.become(node)
        self._add(bootstrap)  # a new one for the bootstrap address
        self.nodes[node.id] = node_connection

    def _drop(self, node_connection: NodeConnection) -> None:
        self._coordinators.discard(node_connection.node.id)
        del self.nodes[node_connection.node.id]
        node_connection.retire()
        if node_connection.connection is not None:
            self._leaving.add(node_connection)

    def _note_change(self, node_connection: NodeConnection) -> None:
        if not node_connection.is_open:
            self._leaving.discard(node_connection)
        if (
            node_connection.has_failed
            and node_connection.node.id >= 0
            and self.nodes.get(node_connection.node.id) is node_connection
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
        return f"<ConnectionPool {len(self.nodes)} waiting={len(self._waiting)}>"


class NodeSelector:
    """Selects a connected node, connecting if needed."""

    def __init__(self, pool: ConnectionPool, context: NetworkContext) -> None:
        self._pool = pool
        self._context = context

    def has_another(self, asked: Collection[NodeConnection]) -> bool:
        return bool(self._others(asked))

    async def reach(self, node_id: int | None, *, besides: Collection[NodeConnection] = ()) -> NodeConnection:
        """Return the connection of a connected node, other than those asked already; connects first if needed."""
        only = None if node_id is None else self._pool.nodes.get(node_id)
        if only is None and node_id is not None:
            raise BrokerConnectionError(f"metadata does not name broker {node_id}")
        if only is not None and only.is_open and not only.is_throttled:
            return only  # the usual case: a coordinator that was asked before
        tried: dict[NodeConnection, int] = {}  # number of earlier failures
        while (node_connection := self._least_loaded_of(self._candidates(node_id, besides))) is None:
            if not self._connect_another(self._candidates(node_id, besides), tried):
                raise _unreachable(list(tried))
            await self._pool.wait_for_change(_HEDGE_S)
        return node_connection

    async def reach_coordinator(self, node: Node) -> NodeConnection:
        """Return the connection of a coordinator, which metadata need not name; connects first if needed."""
        if self._pool.add_coordinator(node) is None:
            text = f"FindCoordinator names broker {node.id}, which metadata does not name, without a valid address"
            raise BrokerConnectionError(text)
        return await self.reach(node.id)

    def _candidates(self, node_id: int | None, besides: Collection[NodeConnection]) -> list[NodeConnection]:
        if node_id is None:
            return self._others(besides) if besides else self._pool.candidates()
        node_connection = self._pool.nodes.get(node_id)
        return [node_connection] if node_connection is not None else []

    def _others(self, asked: Collection[NodeConnection]) -> list[NodeConnection]:
        """Return the other nodes of the cluster, or if there are none, the bootstrap addresses of other places."""
        known = [each for each in self._pool.candidates() if each not in asked]
        if known:
            return known
        places = {each.place for each in asked}
        return [each for each in self._pool.bootstrap() if each not in asked and each.place not in places]

    def _least_loaded_of(self, node_connections: list[NodeConnection]) -> NodeConnection | None:
        """Return the open connection with the fewest requests in flight, if any."""
        now = self._context.loop.time()
        loads = [
            (connection.silent_for_s(now) > _SUSPICIOUS_SILENCE_S, connection.in_flight, self._chance(), index)
            for index, node_connection in enumerate(node_connections)
            if node_connection.is_open
            and not node_connection.is_throttled
            and (connection := node_connection.connection) is not None
        ]
        return node_connections[min(loads)[-1]] if loads else None

    def _connect_another(self, node_connections: list[NodeConnection], tried: dict[NodeConnection, int]) -> bool:
        # Returns whether an attempt is under way. Nodes in their pause come last, the shortest first.
        for node_connection in node_connections:
            if tried.get(node_connection) == node_connection.failures:
                node_connection.connect()  # its connection was closing when it was tried
        untried = [each for each in node_connections if each not in tried]
        if untried:
            now = self._context.loop.time()
            chosen = min(untried, key=lambda node_connection: (max(now, node_connection.retry_at), self._chance()))
            tried[chosen] = chosen.failures
            chosen.connect()
        return any(each.is_open or each.failures == tried.get(each) for each in node_connections)

    def _chance(self) -> float:
        return self._context.random.uniform(0.0, 1.0)


def refusal_of_all(nodes: Collection[NodeConnection]) -> KafkaError | None:
    """Return why the first of these nodes has failed for good, if all of them have."""
    errors = [node.last_error for node in nodes if node.last_error is not None and node.has_failed_for_good]
    return errors[0] if errors and len(errors) == len(nodes) else None


def _unreachable(tried: list[NodeConnection]) -> KafkaError:
    # An address may have been tried as a bootstrap address and as a node of the cluster.
    errors = [*{node.place: node.last_error for node in tried if node.last_error is not None}.values()]
    if len(errors) == 1:
        return errors[0].fresh()
    refusal = refusal_of_all(tried)
    if refusal is not None:
        return refusal.fresh()
    reasons = "; ".join(str(error) for error in errors[:_REASONS_SHOWN]) or "none is known"
    more = f"; and {len(errors) - _REASONS_SHOWN} more" if len(errors) > _REASONS_SHOWN else ""
    brokers = len({node.place for node in tried})
    error = BrokerConnectionError(f"none of {brokers} brokers could be reached: {reasons}{more}")
    error.__cause__ = errors[0] if errors else None
    return error


class HedgedRequest:
    """Asks one broker after another, the least loaded first, until the first response."""

    def __init__(self, selector: NodeSelector, context: NetworkContext) -> None:
        self._selector = selector
        self._context = context

    async def first_response(self, ask: Callable[[NodeConnection], Awaitable[ResponseT]]) -> ResponseT:
        """Return the first response of the brokers that `ask` asks."""
        asked: list[NodeConnection] = []
        asking = [self._begin(ask, asked)]
        ended: list[asyncio.Task[ResponseT]] = []
        try:
            while len(ended) < len(asking):
                waiting = [task for task in asking if task not in ended]
                await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                ended += (just_ended := [task for task in waiting if task.done()])
                answered = next((task for task in just_ended if task.exception() is None), None)
                if answered is not None:
                    return answered.result()
                # A stopped broker keeps its connections, so the first request may hang until its time-out, which
                # detects that.
                if not just_ended and len(asked) == len(asking) and self._selector.has_another(asked):
                    asking.append(self._begin(ask, asked))
            return ended[0].result()  # raises what it failed with
        finally:
            await _end(asking)

    def _begin(
        self, ask: Callable[[NodeConnection], Awaitable[ResponseT]], asked: list[NodeConnection]
    ) -> asyncio.Task[ResponseT]:
        name = f"aioproducer-ask | {self._context.client_id}"
        return self._context.loop.create_task(self._ask(ask, asked), name=name)

    async def _ask(
        self, ask: Callable[[NodeConnection], Awaitable[ResponseT]], asked: list[NodeConnection]
    ) -> ResponseT:
        node_connection = await self._selector.reach(None, besides=asked)
        asked.append(node_connection)
        return await ask(node_connection)


async def _end(asking: list[asyncio.Task[ResponseT]]) -> None:
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
