"""Selects a node for requests that any broker can answer: the least loaded one, or the first that can be reached.

A broker may be stopped, or busy for half a minute with earlier requests of the connection, which looks like a response
that is about to come. So after a second without a response the next broker is asked as well, and the first response
counts.

Source: NetworkClient.leastLoadedNode in Apache Kafka, and KIP-899. Kafka's clients notice a stalled connection only
after `request.timeout.ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

from aioproducer.errors import BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from aioproducer._network.connection_pool import ConnectionPool, NodeConnection
    from aioproducer._network.context import NetworkContext

_REASONS_SHOWN: Final = 3
_HEDGE_S: Final = 1.0  # after this time without a connection another node is tried as well
_SUSPICIOUS_SILENCE_S: Final = 1.0  # a node whose oldest request has waited this long is asked last


class NodeSelector:
    """Selects a connected node, connecting if needed."""

    def __init__(self, pool: ConnectionPool, context: NetworkContext) -> None:
        self._pool = pool
        self._context = context

    def has_another(self, asked: Collection[NodeConnection]) -> bool:
        return bool(self._others(asked))

    async def reach(self, node_id: int | None, *, besides: Collection[NodeConnection] = ()) -> NodeConnection:
        """Return the connection of a connected node, connecting first if needed.

        Args:
            besides: nodes that were asked already.
        """
        only = None if node_id is None else self._pool.get(node_id)
        if only is not None and only.is_open and not only.is_throttled:
            return only  # the usual case: a coordinator that was asked before
        tried: dict[NodeConnection, int] = {}  # number of earlier failures
        while (node_connection := self._least_loaded_of(self._candidates(node_id, besides))) is None:
            if not self._connect_another(self._candidates(node_id, besides), tried):
                error = _unreachable(list(tried))
                raise error
            await self._pool.wait_for_change(_HEDGE_S)
        return node_connection

    def _candidates(self, node_id: int | None, besides: Collection[NodeConnection]) -> list[NodeConnection]:
        if node_id is None:
            return self._others(besides) if besides else self._pool.candidates()
        node_connection = self._pool.get(node_id)
        return [node_connection] if node_connection is not None else []

    def _others(self, asked: Collection[NodeConnection]) -> list[NodeConnection]:
        """Return the other nodes of the cluster, or if there are none, the bootstrap addresses of other places."""
        known = [node_connection for node_connection in self._pool.candidates() if node_connection not in asked]
        if known:
            return known
        places = {node_connection.place for node_connection in asked}
        return [
            node_connection
            for node_connection in self._pool.bootstrap()
            if node_connection not in asked and node_connection.place not in places
        ]

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
        untried = [node_connection for node_connection in node_connections if node_connection not in tried]
        if untried:
            now = self._context.loop.time()
            chosen = min(untried, key=lambda node_connection: (max(now, node_connection.retry_at), self._chance()))
            tried[chosen] = chosen.failures
            chosen.connect()
        return any(
            node_connection.is_open or node_connection.failures == tried.get(node_connection)
            for node_connection in node_connections
        )

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


ResponseT = TypeVar("ResponseT")

PATIENCE_S: Final = 1.0


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
