"""Sends single requests: to any broker, to a coordinator, to the leader of a partition; retries what is retriable."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from aioproducer._logs import event_log
from aioproducer._network.cluster_updates import merge
from aioproducer._network.context import ClusterAccess, NetworkEvents, NetworkSettings, TimerHandle
from aioproducer._network.network_client import NetworkClient, RawResponse, ResponseT
from aioproducer._network.node_connection import label_of
from aioproducer._network.refusals import is_worth_repeating
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    METADATA,
    Api,
    MetadataResponse,
    decode_metadata_response,
    encode_metadata_request,
)
from aioproducer._protocol.topic_admin_messages import DescribedTopic, TopicsResponse, decode_topics_response
from aioproducer._protocol.transaction_messages import (
    FIND_COORDINATOR,
    CoordinatorResponse,
    CoordinatorType,
    decode_find_coordinator_response,
    decode_find_coordinators_response,
    encode_find_coordinator_request,
    encode_find_coordinators_request,
)
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer._version import VERSION
from aioproducer.cluster import Cluster, Node
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

CLIENT_ID: Final = "aioproducer-admin"
REQUEST_TIMEOUT_MS: Final = 5_000
SETUP_TIMEOUT_MS: Final = 4_000
"""For one connection and its handshake: short, so that the reason is known before the request's time is over."""
BACKOFF_MS: Final = (50, 500)
"""Between attempts, at first and at most."""


AnswerT = TypeVar("AnswerT")

KEYS_AT_ONCE: Final = 500
"""Transactional ids in one request."""

_FIND_MANY: Final = FIND_COORDINATOR._replace(min_version=4)
_OTHER_COORDINATOR: Final = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class NoResponseError(KafkaError, TimeoutError):
    """The cluster did not answer in time, or had no response yet; the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class AdminRequest(Generic[ResponseT]):
    """A request to one broker.

    Attributes:
        api: Kafka's request; its `max_version` caps the version.
        encode: makes the body in a version.
        decode: reads the response; may raise ProtocolError alone.
        check: raises what the response refuses. A retriable `BrokerError` has the request sent again.
    """

    api: Api
    encode: Callable[[int], bytes]
    decode: Callable[[RawResponse], ResponseT]
    check: Callable[[ResponseT], None]


class LoopTimers:
    """Timers on the event loop itself: no sender is there to fire them."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> TimerHandle:
        """Call back with the time at `when`."""
        loop = asyncio.get_running_loop()
        return loop.call_at(when, lambda: callback(loop.time()))


class ClusterRequests:
    """Connections to a cluster for single requests; an async context manager, which connects to nothing by itself.

    Args:
        bootstrap: (host, port) pairs.
        timeout_s: for each request, attempts included.
        client_id: for the brokers' logs.
        access: TLS, SASL, proxies and address maps.
    """

    _client: NetworkClient  # set by `__aenter__`

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        timeout_s: float,
        *,
        client_id: str = CLIENT_ID,
        access: ClusterAccess = ClusterAccess(),  # noqa: B008  # a constant
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._access = access
        self._timeout_s = timeout_s
        self._backoff = ExponentialBackoff(*BACKOFF_MS, random=Random())  # noqa: S311  # jitter
        self.cluster: Cluster = Cluster()
        """As of the last `refresh`."""
        self._coordinators: dict[tuple[CoordinatorType, str], Node] = {}
        self._waits_for = ""  # the last request, for the texts of time-outs
        self.last_error: KafkaError | None = None
        """Why the last attempt of a request failed; None if none has."""

    async def __aenter__(self) -> Self:
        """Load certificates and keys.

        Raises:
            ConfigurationError: they cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._client = NetworkClient(
            bootstrap=self._bootstrap,
            settings=NetworkSettings(
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                connection_setup_timeout_ms=min(SETUP_TIMEOUT_MS, max(1, int(self._timeout_s * 400))),
                software_version=VERSION,
                routes=self._access.routes,
            ),
            security=self._access.security(loop),
            timers=LoopTimers(),
            random=Random(),  # noqa: S311  # jitter
            events=NetworkEvents(),
            log=event_log(self._client_id),
            client_id=self._client_id,
        )
        self._client.start(loop)
        await self._client.prepare()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._client.close()

    @property
    def transaction_version(self) -> int:
        """`transaction.version` that the cluster has finalized, as far as a connection has said."""
        return self._client.transaction_version

    async def refresh(self, topics: Sequence[str] | None = (), *, timeout_s: float | None = None) -> Cluster:
        """Fetch the nodes, and the leaders of topics.

        Args:
            topics: None for all.
            timeout_s: for a response; None for the usual time.

        Raises:
            NoResponseError: no broker answers in time.
        """

        def decode(response: RawResponse) -> MetadataResponse:
            return decode_metadata_response(response.version, response.payload, from_node=response.node_id)

        encode = partial(_metadata_request, topics)
        self._waits_for = "Metadata waits for any broker"
        found = await self._until_answered(lambda: self._client.request(METADATA, encode, decode), timeout_s)
        self.cluster = merge(self.cluster, found, asyncio.get_running_loop().time())
        self._client.update_nodes(self.cluster)
        return self.cluster

    async def described_topics(self, topics: Sequence[str] | None = None) -> Sequence[DescribedTopic]:
        """Fetch topics with the replicas of their partitions, in the order of their names.

        Args:
            topics: None for all.

        Raises:
            NoResponseError: no broker answers in time.
        """

        def decode(response: RawResponse) -> TopicsResponse:
            return decode_topics_response(response.version, response.payload)

        encode = partial(_metadata_request, topics)
        self._waits_for = "Metadata waits for any broker"
        found = await self._until_answered(lambda: self._client.request(METADATA, encode, decode))
        return sorted(found.topics)

    async def to_controller(self, request: AdminRequest[ResponseT]) -> ResponseT:
        """Send a request to the controller; brokers of a cluster with KRaft pass it on.

        Raises:
            NoResponseError: no response in time.
            KafkaError: a refusal.
        """

        async def attempt() -> ResponseT:
            controller = self.cluster.controller_id if self.cluster.controller_id in self.cluster.nodes else None
            try:
                return await self._send_to(controller, request)
            except BrokerError as error:
                if error.retriable:
                    await self.refresh()
                raise

        return await self._until_answered(attempt)

    async def find_coordinators(self, transactional_ids: Collection[str]) -> None:
        """Look the coordinators of transactional ids up, many in one request, for the requests that follow.

        An id that is not found now is looked up again by the request that needs it.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._find_many(transactional_ids)
        except (KafkaError, TimeoutError) as error:
            self.last_error = error if isinstance(error, KafkaError) else None

    async def to_coordinators(
        self, transactional_ids: Collection[str], request_of: Callable[[Sequence[str]], AdminRequest[ResponseT]]
    ) -> Sequence[ResponseT]:
        """Send each coordinator one request about all of its transactional ids.

        Raises:
            NoResponseError: no response in time.
            KafkaError: a refusal.
        """

        async def attempt() -> Sequence[ResponseT]:
            await self._find_many(transactional_ids)
            asked: dict[Node, list[str]] = {}
            for each in transactional_ids:
                asked.setdefault(await self._coordinator(each, CoordinatorType.TRANSACTION), []).append(each)
            try:
                return await asyncio.gather(*(self._send(node, request_of(ids)) for node, ids in asked.items()))
            except (BrokerError, BrokerConnectionError):
                self._forget(transactional_ids, CoordinatorType.TRANSACTION)
                raise

        return await self._until_answered(attempt)

    async def to_node(self, node_id: int, request: AdminRequest[ResponseT]) -> ResponseT:
        """Send a request to a broker that `refresh` has found.

        Raises:
            NoResponseError: no response in time.
            KafkaError: a refusal.
        """
        return await self._until_answered(lambda: self._send_to(node_id, request))

    async def to_coordinator(
        self,
        key: str,
        request: AdminRequest[ResponseT],
        *,
        kind: CoordinatorType = CoordinatorType.TRANSACTION,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """Send a request to the current coordinator of a transactional id, or of a group.

        The coordinator is looked up before the first request: until then a new cluster has no topic for its state, and
        a broker answers every request with COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR.

        Raises:
            NoResponseError: no response in time.
            KafkaError: a refusal.
        """

        async def attempt() -> ResponseT:
            node = await self._coordinator(key, kind)
            try:
                return await self._send(node, request)
            except (BrokerError, BrokerConnectionError) as error:
                if not isinstance(error, BrokerError) or error.code in _OTHER_COORDINATOR:
                    self._forget([key], kind)
                raise

        return await self._until_answered(attempt, timeout_s)

    async def _send_to(self, node_id: int | None, request: AdminRequest[ResponseT]) -> ResponseT:
        """Send to a node that metadata names, or to any."""
        self._waits_for = f"{request.api.name} waits for {'any broker' if node_id is None else f'broker {node_id}'}"
        response = await self._client.request(request.api, request.encode, request.decode, node_id=node_id)
        request.check(response)
        return response

    async def _send(self, coordinator: Node, request: AdminRequest[ResponseT]) -> ResponseT:
        self._waits_for = f"{request.api.name} waits for {label_of(coordinator)}"
        response = await self._client.request(request.api, request.encode, request.decode, coordinator=coordinator)
        request.check(response)
        return response

    async def _find_many(self, transactional_ids: Collection[str]) -> None:
        kind = CoordinatorType.TRANSACTION
        missing = [each for each in transactional_ids if (kind, each) not in self._coordinators]
        for start in range(0, len(missing), KEYS_AT_ONCE):
            self._waits_for = "FindCoordinator waits for any broker"
            body = encode_find_coordinators_request(missing[start : start + KEYS_AT_ONCE], kind)
            try:
                found = await self._client.request(
                    _FIND_MANY,
                    partial(_same, body),
                    lambda response: decode_find_coordinators_response(response.payload),
                )
            except UnsupportedVersionError:  # before Kafka 3.0
                return
            for key, coordinator in found.coordinators.items():
                if coordinator.error_code == ErrorCode.NONE:
                    self._coordinators[kind, key] = coordinator.node

    def _forget(self, keys: Iterable[str], kind: CoordinatorType) -> None:
        for key in keys:
            self._coordinators.pop((kind, key), None)

    async def _coordinator(self, key: str, kind: CoordinatorType) -> Node:
        if (known := self._coordinators.get((kind, key))) is not None:
            return known

        def encode(version: int) -> bytes:
            return encode_find_coordinator_request(version, key, kind)

        def decode(response: RawResponse) -> CoordinatorResponse:
            return decode_find_coordinator_response(response.version, response.payload, key=key)

        self._waits_for = "FindCoordinator waits for any broker"
        found = await self._client.request(FIND_COORDINATOR, encode, decode)
        raise_refusal(found.error_code, f"coordinator of {key!r}")
        self._coordinators[kind, key] = found.node
        return found.node

    async def _until_answered(
        self, attempt: Callable[[], Awaitable[AnswerT]], timeout_s: float | None = None
    ) -> AnswerT:
        self.last_error = None
        longest_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(longest_s):
                return await self._retry(attempt)
        except TimeoutError:
            why = str(self.last_error or " ".join(filter(None, [self._waits_for, self._client.missing()])))
            raise NoResponseError(f"no answer in {longest_s:g} s: {why}", last_broker_error=self.last_error) from None

    async def _retry(self, attempt: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        failures = 0
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                may_be_answered = error.retriable if isinstance(error, BrokerError) else is_worth_repeating(error)
                if not may_be_answered:
                    raise
                self.last_error = error
            await asyncio.sleep(self._backoff.delay_s(failures))
            failures += 1


def raise_refusal(code: int, what: str) -> None:
    """Do nothing for 0.

    Raises:
        BrokerError: for any other code, in words; retriable where the same request may succeed later.
    """
    if code == ErrorCode.NONE:
        return
    row = ErrorCode.of(code)
    is_passing = row is not None and (row.retriable or row.renegotiate)
    refusal = BrokerError.of(code, f"{what}: {ErrorCode.in_words(code)}", retriable=is_passing)
    raise refusal


def _metadata_request(topics: Sequence[str] | None, version: int) -> bytes:
    """Encode a request about some topics, or about all; creates none."""
    body = encode_metadata_request(version, topics or [], allow_auto_topic_creation=False)
    if topics is not None:
        return body
    every, none = (b"\x00", b"\x01") if METADATA.is_flexible(version) else (b"\xff" * 4, b"\x00" * 4)
    return every + body[len(none) :]


def _same(body: bytes, _version: int) -> bytes:
    return body
