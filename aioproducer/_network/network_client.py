"""All connections of one producer: who can be sent to, sending, and asking any broker a question.

Source: NetworkClient in Apache Kafka, whose selector is here the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.connection_pool import ConnectionPool
from aioproducer._network.context import (
    EventLog,
    NetworkContext,
    NetworkCounters,
    NetworkSettings,
    Timers,
)
from aioproducer._network.node_connection import NodeConnection
from aioproducer._network.node_selection import HedgedRequest, NodeSelector
from aioproducer._network.requests import OutgoingRequest
from aioproducer._network.response_future import PendingRequest, RawResponse, ResponseT
from aioproducer._protocol.api_versions import NO_FEATURES
from aioproducer._protocol.messages import PRODUCE, Api
from aioproducer._protocol.primitives import Response
from aioproducer._timing.retry_backoff import RandomSource
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import BrokerConnectionError, KafkaError


class NetworkClient:  # noqa: PLR0904  # what is asked of a node, of any node, and of all
    """Owns the connections.

    Args:
        bootstrap: (host, port) pairs.
        settings: see there.
        timers: shared with the sender, who fires them.
        random: shared; spreads backoffs and choices.
        wake: called when something may have become possible, or an earlier deadline exists; must be cheap.
        log: for events.
        client_id: sent with every request.
    """

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
        wake: Callable[[], None],
        log: EventLog,
        client_id: str,
    ) -> None:
        self.counters: NetworkCounters = NetworkCounters()
        self.on_node_failed: Callable[[], None] = lambda: None
        """Called on the loop when a node that metadata names could not be connected to, or its connection was lost."""
        self.on_node_tried_again: Callable[[], None] = lambda: None
        """Called when an attempt to connect to a node that has failed is wanted: it may hang; must be cheap."""
        self._bootstrap = tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap))
        self._make_environment = partial(
            NetworkContext,
            timers=timers,
            random=random,
            wake=wake,
            log=log,
            client_id=client_id,
            settings=settings,
            counters=self.counters,
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop. Nothing is connected until someone asks for it."""
        self._environment = self._make_environment(loop=loop)
        self._links = ConnectionPool(
            self._bootstrap,
            self._environment,
            on_failed=lambda: self.on_node_failed(),  # noqa: PLW0108  # set later
            on_tried_again=lambda: self.on_node_tried_again(),  # noqa: PLW0108  # set later
        )
        self._choice = NodeSelector(self._links, self._environment)
        self._any_broker = HedgedRequest(self._choice, self._environment)

    async def close(self) -> None:
        """Close all connections and wait until they are; what was in flight is lost. May be called again."""
        await self._links.close(BrokerConnectionError("the producer was closed"))

    def abandon(self) -> None:
        """Close all connections without waiting, also where the loop is closed; make no further one."""
        self._links.abandon()

    # Nodes by id

    def ready_connection(self, node_id: int) -> int:
        """Return the number of the connection on which a node takes a request now, another for each; 0: none."""
        link = self._links.get(node_id)
        return link.connection_id if link is not None and link.is_ready else 0

    def connect(self, node_id: int) -> None:
        """Begin connecting, unless connected, connecting, or unknown; after a failure, once its pause is over."""
        link = self._links.get(node_id)
        if link is not None:
            link.connect()

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Close a node's connection; its requests are lost a little later, from the loop. `connect` makes another."""
        link = self._links.get(node_id)
        if link is not None:
            link.disconnect(error)

    def produce_version(self, node_id: int, at_most: int = PRODUCE.max_version) -> int:
        """Return the highest version of Produce that a connected node speaks.

        Raises:
            UnsupportedVersionError: it speaks none that this client does.
            BrokerConnectionError: it is not connected.
        """
        return self._connection(node_id).versions.highest_common(PRODUCE, at_most=at_most)

    def send(self, node_id: int, request: OutgoingRequest) -> None:
        """Hand a request to a node's transport, in this call.

        Raises:
            BrokerConnectionError: the node is not connected; ask for a `ready_connection` first.
        """
        self._connection(node_id).send(request)

    def apply_throttle_and_versions(self, node_id: int, response: Response, *, api: Api, now: float) -> None:
        """Do what a node's answer to a request of `send` asks of the way to it; `request` does so by itself."""
        link = self._links.get(node_id)
        if link is not None:
            link.apply_throttle_and_versions(response, api, now)

    def requests_in_flight(self) -> dict[int, int]:
        """Return how many requests have not ended, by the id of each node that metadata names."""
        return {link.node.id: link.in_flight for link in self._links.known()}

    def last_error(self, node_id: int) -> KafkaError | None:
        """Return why a node is not sent to: it is not connected, or throttles this client; None: it is sent to."""
        link = self._links.get(node_id)
        if link is not None and link.is_throttled:
            left_s = link.throttled_until - self._environment.loop.time()
            return KafkaError(f"it throttles this client, for another {left_s:.1f} s")
        return link.last_error if link is not None else None

    def throttle_left_s(self) -> float:
        """Return for how many seconds no connected node is asked, because each has said so (KIP-219)."""
        links, now = [link for link in self._links.candidates() if link.is_open], self._environment.loop.time()
        return min((link.throttled_until - now if link.is_throttled else 0.0 for link in links), default=0.0)

    def tries_in_vain(self) -> bool:
        """Tell whether a node that metadata names has failed, and is being tried again."""
        return self._links.tries_in_vain()

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
        """Ask a broker, connecting to it if need be, and wait for its answer, which is heeded as it is read.

        Every reachable node gets one attempt to connect, with its back-off; the answer is waited for as long as
        `request_timeout_ms`, and others are asked meanwhile if any may answer. Cancelling gives up the wait; the
        answer is then ignored.

        Args:
            api: which request.
            build: makes the request's body in the version agreed on.
            decode: reads the answer; a ProtocolError closes the connection and is raised here.
            node_id: whom to ask; None = the least loaded node, and others if it does not answer soon.
            at_most: a bound on the version, below the newest that this client speaks.

        Raises:
            BrokerConnectionError: nobody could be reached, or the connection was lost before the answer.
            UnsupportedVersionError: the broker does not speak this request.
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
        """The level of transactions that the cluster has finalized, as far as any connection has said: 0, 1, 2."""
        return self._environment.features.transaction_version

    def update_nodes(self, cluster: Cluster) -> None:
        """Take the nodes that metadata names; connections to others close when nothing is in flight on them."""
        self._links.update(cluster.nodes)

    def cluster_changed(self, node_id: int) -> None:
        """Note that the addresses lead to another cluster: only this node's finalized features count from now on."""
        link = self._links.get(node_id)
        connection = link.connection if link is not None else None
        self._environment.features.replace(connection.versions.features if connection is not None else NO_FEATURES)

    def rebootstrap(self) -> None:
        """Ask only the bootstrap addresses until metadata comes from one of them (KIP-1102)."""
        self._links.forget_known()

    def end_rebootstrap(self) -> None:
        """Ask the nodes that metadata names again: it has come. What a Produce says of new leaders is no such news."""
        self._links.ask_known()

    def _connection(self, node_id: int) -> BrokerConnection:
        link = self._links.get(node_id)
        if link is None or link.connection is None:
            raise BrokerConnectionError(f"node {node_id} is not connected")
        return link.connection
