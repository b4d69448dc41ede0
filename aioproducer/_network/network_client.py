"""All connections of one producer: sends to a node, and asks any broker.

Source: NetworkClient in Apache Kafka, whose selector is here the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aioproducer._network.connection_pool import ConnectionPool
from aioproducer._network.context import (
    EventLog,
    NetworkContext,
    NetworkCounters,
    NetworkEvents,
    NetworkSettings,
    Timers,
)
from aioproducer._network.node_selection import HedgedRequest, NodeSelector
from aioproducer._network.response_future import PendingRequest, RawResponse, ResponseT
from aioproducer._protocol.api_versions import NO_FEATURES
from aioproducer._protocol.messages import PRODUCE, Api
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from aioproducer._network.connection import BrokerConnection
    from aioproducer._network.connection_pool import NodeConnection
    from aioproducer._network.requests import OutgoingRequest
    from aioproducer._protocol.primitives import Response
    from aioproducer._timing.retry_backoff import RandomSource


class NetworkClient:  # noqa: PLR0904  # what is asked of a node, of any node, and of all
    """Owns the connections; `bootstrap` are (host, port) pairs."""

    # Set by `start`.
    _environment: NetworkContext
    _links: ConnectionPool
    _choice: NodeSelector
    _any_broker: HedgedRequest

    def __init__(  # noqa: PLR0913  # all that the network needs from outside, in one place
        self,
        *,
        bootstrap: Sequence[tuple[str, int]],
        settings: NetworkSettings,
        timers: Timers,
        random: RandomSource,
        events: NetworkEvents,
        log: EventLog,
        client_id: str,
    ) -> None:
        self.counters: NetworkCounters = NetworkCounters()
        self._bootstrap = tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap))
        self._make_environment = partial(
            NetworkContext,
            timers=timers,
            random=random,
            events=events,
            log=log,
            client_id=client_id,
            settings=settings,
            counters=self.counters,
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop; nothing is connected yet."""
        self._environment = self._make_environment(loop=loop)
        self._links = ConnectionPool(self._bootstrap, self._environment)
        self._choice = NodeSelector(self._links, self._environment)
        self._any_broker = HedgedRequest(self._choice, self._environment)

    async def close(self) -> None:
        """Close all connections, and wait until they are closed; requests in flight are lost. May be called again."""
        await self._links.close(BrokerConnectionError("the producer was closed"))

    def abandon(self) -> None:
        """Close all connections without waiting, also if the loop is closed, and make no further one."""
        self._links.abandon()

    # Nodes by id

    def ready_connection(self, node_id: int) -> int:
        """Return the number of the connection on which a node takes a request now, or 0."""
        link = self._links.get(node_id)
        return link.connection_id if link is not None and link.is_ready else 0

    def connect(self, node_id: int) -> None:
        """Begin connecting to a known node, unless connected or connecting; after a failure, when its pause is over."""
        link = self._links.get(node_id)
        if link is not None:
            link.connect()

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Close a node's connection; the loop ends its requests as lost a little later."""
        link = self._links.get(node_id)
        if link is not None:
            link.disconnect(error)

    def produce_version(self, node_id: int, at_most: int = PRODUCE.max_version) -> int:
        """Return the highest version of Produce that a node and this client have in common."""
        return self._connection(node_id).produce_version(at_most)

    def send(self, node_id: int, request: OutgoingRequest) -> None:
        """Hand a request to the transport of a node with a `ready_connection`, in this call."""
        self._connection(node_id).send(request)

    def apply_throttle_and_versions(self, node_id: int, response: Response, *, api: Api, now: float) -> None:
        """Apply throttling and version changes of a response to `send`; `request` does so by itself."""
        link = self._links.get(node_id)
        if link is not None:
            link.apply_throttle_and_versions(response, api, now)

    def requests_in_flight(self) -> dict[int, int]:
        return {link.node.id: link.in_flight for link in self._links.known()}

    def last_error(self, node_id: int) -> KafkaError | None:
        """Return the reason why a node is not sent to: not connected, or throttled; None if there is none."""
        link = self._links.get(node_id)
        if link is not None and link.is_throttled:
            left_s = link.throttled_until - self._environment.loop.time()
            return KafkaError(f"it throttles this client, for another {left_s:.1f} s")
        return link.last_error if link is not None else None

    def throttle_left_s(self) -> float:
        """Return for how many seconds all connected nodes throttle this client (KIP-219)."""
        links, now = [link for link in self._links.candidates() if link.is_open], self._environment.loop.time()
        return min((link.throttled_until - now if link.is_throttled else 0.0 for link in links), default=0.0)

    def retries_failed_node(self) -> bool:
        return self._links.retries_failed_node()

    # Any node

    async def request(
        self,
        api: Api,
        build: Callable[[int], bytes],
        decode: Callable[[RawResponse], ResponseT],
        *,
        node_id: int | None = None,
        at_most: int | None = None,
    ) -> ResponseT:
        """Send a request to a broker, connecting if needed, and wait for the response.

        Every reachable node gets one attempt to connect. The wait is bounded by `request_timeout_ms`; if any node may
        answer, others are asked meanwhile. The response to a cancelled call is ignored.

        Args:
            decode: decodes the response; a ProtocolError closes the connection and is raised here.
            node_id: of the node; None asks the least loaded node, and others if it does not answer soon.
            at_most: a bound of the version.

        Raises:
            BrokerConnectionError: no node could be reached, or the connection was lost before the response.
            UnsupportedVersionError: the broker does not support this request.
        """

        def ask(link: NodeConnection) -> Awaitable[ResponseT]:
            if link.connection is None:
                raise BrokerConnectionError(f"{link} was lost")
            version = link.connection.versions.highest_common(api, at_most=at_most)
            question = PendingRequest(self._environment, link, decode)
            link.connection.send(question.outgoing(api, version, build(version)))
            return question.answer

        if node_id is None:
            return await self._any_broker.first_answer(ask)
        return await ask(await self._choice.reach(node_id))

    @property
    def transaction_version(self) -> int:
        """The level of transactions that the cluster has finalized, by the reports of brokers: 0, 1 or 2."""
        return self._environment.features.transaction_version

    def update_nodes(self, cluster: Cluster) -> None:
        """Take the nodes that metadata names; other connections close when no request is in flight."""
        self._links.update(cluster.nodes)

    def cluster_changed(self, node_id: int) -> None:
        """Take the finalized features of this node alone: the addresses lead to another cluster."""
        link = self._links.get(node_id)
        connection = link.connection if link is not None else None
        self._environment.features.replace(connection.versions.features if connection is not None else NO_FEATURES)

    def rebootstrap(self) -> None:
        """Ask only the bootstrap addresses until metadata comes from one of them (KIP-1102)."""
        self._links.forget_known()

    def end_rebootstrap(self) -> None:
        """Ask the nodes that metadata names again; the new leaders in a Produce response do not count as metadata."""
        self._links.ask_known()

    def _connection(self, node_id: int) -> BrokerConnection:
        link = self._links.get(node_id)
        if link is None or link.connection is None:
            raise BrokerConnectionError(f"node {node_id} is not connected")
        return link.connection
