"""All connections of one producer: sends to a node, and asks any broker.

Source: NetworkClient in Apache Kafka, whose selector is here the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from aioproducer._network.connection import whole_request
from aioproducer._network.connection_pool import ConnectionPool, HedgedRequest, NodeSelector, refusal_of_all
from aioproducer._network.context import (
    ConnectionSecurity,
    NetworkContext,
    NetworkCounters,
    NetworkEvents,
    NetworkSettings,
    NodeCounters,
    Timers,
)
from aioproducer._network.node_connection import label_of
from aioproducer._network.refusals import Refusals
from aioproducer._network.requests import Answered, Lost, OpenRequest, OutgoingRequest, RequestEnd, Written
from aioproducer._protocol.api_versions import NO_FEATURES
from aioproducer._protocol.messages import Api
from aioproducer._protocol.primitives import Response
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import BrokerConnectionError, ConfigurationError, KafkaError
from aioproducer.explanation import WaitReason, Why

if TYPE_CHECKING:
    from aioproducer._logs import EventLog
    from aioproducer._network.node_connection import NodeConnection
    from aioproducer._network.silence import Silence
    from aioproducer._timing.retry_backoff import RandomSource


ResponseT = TypeVar("ResponseT", bound=Response)

_LOOK_AGAIN_S: Final = 1.0
_MOST_SHOWN: Final = 3  # brokers in a text
_UNNAMED: Final = Why(WaitReason.CONNECTING, detail="metadata does not name it")


class NetworkClient:  # noqa: PLR0904  # what is asked of a node, of any node, and of all
    """Owns the connections; `bootstrap` are (host, port) pairs."""

    # Set by `start`.
    _context: NetworkContext
    _pool: ConnectionPool
    _node_selector: NodeSelector
    _hedged_request: HedgedRequest

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
        security: ConnectionSecurity | None = None,
    ) -> None:
        self.counters_by_node: NodeCounters = NodeCounters()
        self._open_requests: dict[OpenRequest, None] = {}
        self._bootstrap = tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap))
        self._make_context = partial(
            NetworkContext,
            timers=timers,
            random=random,
            events=events,
            log=log,
            client_id=client_id,
            settings=settings,
            security=security,
            counters_by_node=self.counters_by_node,
            refusals=Refusals(settings.refusal_pause_max_ms),
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop; nothing is connected yet."""
        self._context = self._make_context(loop=loop)
        self._pool = ConnectionPool(self._bootstrap, self._context)
        self._node_selector = NodeSelector(self._pool, self._context)
        self._hedged_request = HedgedRequest(self._node_selector, self._context)

    @property
    def counters(self) -> NetworkCounters:
        """The sums over all nodes."""
        return self.counters_by_node.total()

    @property
    def silence(self) -> Silence:
        """Whether brokers answer; noted by the connections and the refresher of metadata."""
        return self._context.silence

    async def prepare(self) -> None:
        """Load certificates and keys, before anything is connected.

        Raises:
            ConfigurationError: they cannot be used. If a password cannot be had now, each connection asks for it again.
        """
        security = self._context.security
        if security is None or security.tls is None:
            return
        try:
            await security.tls.prepare()
        except ConfigurationError as error:
            if not error.retriable:
                raise
        except (OSError, RuntimeError):
            pass  # the system has no descriptor or thread now: the connections will load them

    async def close(self) -> None:
        """Close all connections, and wait until they are closed; requests in flight are lost. May be called again."""
        self._end_authentication()
        await self._pool.close(BrokerConnectionError("the producer was closed"))
        security = self._context.security
        if security is not None and security.sasl is not None:
            await security.sasl.closed()

    def abandon(self) -> None:
        """Close all connections without waiting, also if the loop is closed, and make no further one."""
        self._end_authentication()
        self._pool.abandon()

    # Nodes

    @property
    def nodes(self) -> Mapping[int, NodeConnection]:
        """The nodes that metadata or FindCoordinator names, by id; bootstrap addresses have negative ids."""
        return self._pool.nodes

    def blocked(self, node_id: int) -> Why | None:
        """Return why a node takes no request now; None if it takes one."""
        node = self._pool.nodes.get(node_id)
        return _UNNAMED if node is None else node.blocked

    def requests_in_flight(self) -> dict[int, int]:
        return {node_connection.node.id: node_connection.in_flight for node_connection in self._pool.known()}

    def missing(self) -> str:
        """Return what the connections to brokers wait for, by broker; empty if none waits for anything."""
        found = ((each.node, each.missing) for each in self._pool.candidates())
        texts = {f"{label_of(node)}: {missing}": None for node, missing in found if missing}
        more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
        return "; ".join(list(texts)[:_MOST_SHOWN]) + more

    def throttle_left_s(self) -> float:
        """Return for how many seconds all connected nodes throttle this client (KIP-219)."""
        now = self._context.loop.time()
        opened = [each for each in self._pool.candidates() if each.is_open]
        return min((each.throttled_until - now if each.is_throttled else 0.0 for each in opened), default=0.0)

    def retries_failed_node(self) -> bool:
        return self._pool.retries_failed_node()

    async def refused_by_all(self) -> KafkaError:
        """Wait until every broker that may be asked refuses this client for good; return why the first one does."""
        while (refusal := refusal_of_all(self._pool.candidates())) is None:
            await self._pool.wait_for_change(_LOOK_AGAIN_S)
        return refusal

    # Any node

    async def request(
        self,
        api: Api,
        build: Callable[[int], bytes],
        decode: Callable[[RawResponse], ResponseT],
        *,
        node_id: int | None = None,
        coordinator: Node | None = None,
        at_most: int | None = None,
    ) -> ResponseT:
        """Send a request to a broker, connecting if needed, and wait for the response.

        Every reachable node gets one attempt to connect. The wait is bounded by `request_timeout_ms`; if any node may
        answer, others are asked meanwhile. A cancelled call is not sent if it still waits for an authentication;
        else its response is ignored.

        Args:
            decode: a ProtocolError that it raises closes the connection and is raised here.
            node_id: of a node that metadata names. Without it, and without a coordinator, the least loaded node is
                asked, and others if it does not answer soon.
            coordinator: as FindCoordinator names it, with the address to use if metadata does not name it.
            at_most: a bound of the version.

        Raises:
            BrokerConnectionError: no node could be reached, or the connection was lost before the response.
            UnsupportedVersionError: the broker does not support this request.
        """
        opened = OpenRequest(api.name, node_id if coordinator is None else coordinator.id, self._context.loop.time())

        def ask(node_connection: NodeConnection) -> Awaitable[ResponseT]:
            connection = node_connection.connection
            if connection is None:
                raise BrokerConnectionError(f"{node_connection} was lost")
            version = connection.versions.highest_common(api, at_most=at_most)
            pending = PendingRequest(self._context, node_connection, decode)
            request = pending.outgoing(api, version, build(version))
            connection.send(request)
            opened.asked[node_connection.node.id] = request.sent_at
            pending.response.add_done_callback(
                lambda response: connection.withdraw(request) if response.cancelled() else None
            )
            return pending.response

        self._open_requests[opened] = None
        try:
            if coordinator is not None:
                return await ask(await self._node_selector.reach_coordinator(coordinator))
            if node_id is None:
                return await self._hedged_request.first_response(ask)
            return await ask(await self._node_selector.reach(node_id))
        finally:
            del self._open_requests[opened]

    def open_request(self, *names: str) -> OpenRequest | None:
        """Return the oldest request of these APIs whose caller still waits."""
        return next((each for each in self._open_requests if each.api in names), None)

    @property
    def transaction_version(self) -> int:
        """The level of transactions that the cluster has finalized, by the reports of brokers: 0, 1 or 2."""
        return self._context.features.transaction_version

    def update_nodes(self, cluster: Cluster) -> None:
        """Take the nodes that metadata names; other connections close when no request is in flight."""
        self._context.refusals.metadata_came()
        self._pool.update(cluster.nodes)

    def cluster_changed(self, node_id: int) -> None:
        """Take the finalized features of this node alone: the addresses lead to another cluster."""
        node_connection = self._pool.nodes.get(node_id)
        connection = node_connection.connection if node_connection is not None else None
        self._context.features.replace(connection.versions.features if connection is not None else NO_FEATURES)

    def rebootstrap(self) -> None:
        """Ask only the bootstrap addresses until metadata comes from one of them (KIP-1102)."""
        self._pool.use_bootstrap_only()

    def end_rebootstrap(self) -> None:
        """Ask the nodes that metadata names again; the new leaders in a Produce response do not count as metadata."""
        self._pool.use_known()

    def _end_authentication(self) -> None:
        security = self._context.security
        if security is not None and security.sasl is not None:
            security.sasl.close()


class RawResponse(NamedTuple):
    """A response that is not decoded yet."""

    node_id: int  # negative for a bootstrap address
    version: int
    payload: memoryview


class PendingRequest(Generic[ResponseT]):
    """One request and the future of its response; an error of `decode` closes the connection."""

    def __init__(
        self, context: NetworkContext, node_connection: NodeConnection, decode: Callable[[RawResponse], ResponseT]
    ) -> None:
        self.response: asyncio.Future[ResponseT] = context.loop.create_future()
        self._wake = context.events.wake
        self._max_in_flight = context.settings.max_in_flight
        self._node_connection = node_connection
        self._decode = decode

    def outgoing(self, api: Api, version: int, body: bytes) -> OutgoingRequest:
        def on_end(end: RequestEnd) -> None:
            if not isinstance(end, Answered):
                self._fail(end)
                return
            # The node's id is read now: metadata may have named a bootstrap address since the request was sent.
            response = self._decode(RawResponse(self._node_connection.node.id, version, end.payload))
            self._node_connection.apply_throttle_and_versions(response, api, end.now)
            if not self.response.done():
                self.response.set_result(response)
            if self._node_connection.in_flight + 1 >= self._max_in_flight:
                self._wake()  # the sender may have waited for the room

        return whole_request(api, version, body=body, on_end=on_end)

    def _fail(self, end: Lost | Written) -> None:
        assert isinstance(end, Lost), "a request with a response"
        if not self.response.done():
            self.response.set_exception(end.error.fresh())
