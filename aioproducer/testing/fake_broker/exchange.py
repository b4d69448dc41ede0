"""One request and its single answer, while a broker is busy with it; and effects, how brokers reach the network.

`ModelCluster` collects effects in order; its driver takes them after each call and carries them out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from aioproducer.testing.fake_broker.faults import Fault, FaultKind, Faults, Where
from aioproducer.testing.fake_broker.wire.api_keys import API_BY_NUMBER, ApiKey
from aioproducer.testing.fake_broker.wire.messages import Tree, decode_request, encode_response
from aioproducer.testing.fake_broker.wire.primitives import Buffer, MalformedRequestError, Reader

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping, Sequence

    from aioproducer.testing.fake_broker.client_metrics import ClientMetrics
    from aioproducer.testing.fake_broker.consumer_groups import ConsumerGroups
    from aioproducer.testing.fake_broker.coordinators import CoordinatorTable, ProducerIds
    from aioproducer.testing.fake_broker.log.partition import Partition
    from aioproducer.testing.fake_broker.schedule import Schedule
    from aioproducer.testing.fake_broker.security import SaslSession, SeenAuthentication
    from aioproducer.testing.fake_broker.settings import ClusterSettings
    from aioproducer.testing.fake_broker.topics import TopicCatalogue
    from aioproducer.testing.fake_broker.transaction_coordinator import TransactionCoordinator
    from aioproducer.testing.fake_broker.transaction_markers import MarkerWriter
    from aioproducer.testing.fake_broker.version_profiles import Features

_FIXED = struct.Struct(">hhi")


class ServingBroker(Protocol):
    """The broker, as the code that serves one of its requests sees it."""

    node_id: int
    host: str
    port: int
    incarnation: int
    is_in_metadata: bool
    endpoints: dict[str, tuple[str, int]]
    stale_leaders: Mapping[Partition, tuple[int, int]]
    header_tags: bytes

    @property
    def cluster(self) -> SharedState: ...

    def finish(self, exchange: Exchange, parts: Sequence[Buffer] | None, now: float) -> None: ...

    def send_last(self, exchange: Exchange, parts: Sequence[Buffer]) -> None: ...

    def session_of(self, connection_id: int) -> SaslSession | None: ...

    def listener_of(self, connection_id: int) -> str: ...

    def hang_up(self, connection_id: int, reason: str) -> None: ...


class SharedState(Protocol):
    """The cluster, as the code that serves requests sees it."""

    settings: ClusterSettings
    schedule: Schedule
    faults: Faults
    groups: ConsumerGroups
    topics: TopicCatalogue
    producer_ids: ProducerIds
    features: Features
    coordinators: CoordinatorTable
    markers: MarkerWriter
    transactions: TransactionCoordinator
    client_metrics: ClientMetrics
    observe: Callable[[Exchange, object, float], None]
    authentications: deque[SeenAuthentication]
    requests: deque[SeenRequest]
    intruders: list[SeenRequest]

    @property
    def brokers(self) -> Mapping[int, ServingBroker]: ...

    def live_nodes(self) -> list[int]: ...

    def new_session(self, listener: str) -> SaslSession | None: ...

    def emit(self, effect: Effect) -> None: ...

    def note(self, request: SeenRequest) -> None: ...


class SeenRequest(NamedTuple):
    """One request that reached a broker."""

    api: ApiKey
    version: int
    node_id: int
    client_id: str | None
    at: float
    """In seconds of the driver's clock."""

    size: int
    """Bytes of the frame, without its length."""

    connection_id: int


class RequestHeader(NamedTuple):
    api_number: int
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, Reader]:
    """Read the fields that all header versions share; the reader is left behind them."""
    reader = Reader(frame)
    if len(frame) < _FIXED.size:
        raise MalformedRequestError(f"a request of {len(frame)} bytes")
    reader.position = _FIXED.size
    api_number, version, correlation_id = _FIXED.unpack_from(frame)
    return RequestHeader(api_number, version, correlation_id, reader.string()), reader


def read_payload(api: ApiKey, header: RequestHeader, reader: Reader) -> memoryview:
    """Skip the rest of the header and return the request's body."""
    reader.flexible = api.is_flexible(header.version)
    reader.skip_tagged_fields()
    return reader.rest()


class Exchange:
    """A request that a broker is serving; exactly one of `reply`, `finish_silently`, `hang_up` ends it."""

    __slots__ = (
        "api",
        "broker",
        "cluster",
        "connection_id",
        "header",
        "incarnation",
        "is_flexible",
        "is_last",
        "now",
        "payload",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, broker: ServingBroker, connection_id: int, header: RequestHeader, *, payload: memoryview, now: float
    ) -> None:
        self.broker: ServingBroker = broker
        self.cluster: SharedState = broker.cluster
        self.connection_id: int = connection_id
        self.header: RequestHeader = header
        self.api: ApiKey = API_BY_NUMBER[header.api_number]
        self.version: int = header.version
        self.is_flexible: bool = self.api.is_flexible(header.version)
        """Whether request and answer have compact lengths and tagged fields."""
        self.payload: memoryview[int] = payload
        self.incarnation: int = broker.incarnation
        self.now: float = now
        self.throttle_ms: int = 0
        self.is_last: bool = False
        """Whether the connection closes behind the response."""

    @property
    def session(self) -> SaslSession | None:
        """The session of the connection; None for a listener without SASL."""
        return self.broker.session_of(self.connection_id)

    def address_of(self, node_id: int) -> tuple[str, int]:
        """Return host and port of a broker as clients of this connection's listener reach it."""
        broker = self.cluster.brokers[node_id]
        return broker.endpoints.get(self.broker.listener_of(self.connection_id), (broker.host, broker.port))

    def request(self) -> object:
        return decode_request(self.api, self.version, self.payload)

    def reader(self) -> Reader:
        """Return a reader of the body, for messages decoded by hand."""
        return Reader(self.payload, flexible=self.is_flexible)

    def reply(self, parts: Sequence[Buffer], now: float) -> None:
        self.broker.finish(self, parts, now)

    def reply_tree(self, tree: Tree, now: float) -> None:
        self.cluster.observe(self, tree, now)
        body = {"throttle_time": self.throttle_ms, **tree}
        self.reply([encode_response(self.api, self.version, body)], now)

    def reply_last(self, tree: Tree, now: float) -> None:
        """Respond, and close the connection."""
        self.is_last = True
        self.reply_tree(tree, now)

    def reply_late(self, tree: Tree, now: float) -> None:
        """Respond although the exchange has ended, behind the responses to later requests, and close the connection."""
        del now
        self.broker.send_last(self, [encode_response(self.api, self.version, tree)])

    def finish_silently(self, now: float) -> None:
        """End without a response, as with `acks=0`."""
        self.broker.finish(self, None, now)

    def hang_up(self, reason: str) -> None:
        self.broker.hang_up(self.connection_id, reason)

    # Faults

    def where(self, topic: str | None = None, partition: int | None = None) -> Where:
        """Return where this request is, for rules to match."""
        return Where(
            api=self.api, node_id=self.broker.node_id, client_id=self.header.client_id, topic=topic, partition=partition
        )

    def fault(self, kind: FaultKind, topic: str | None = None, partition: int | None = None) -> Fault | None:
        """Return the rule of this kind that applies now, or None."""
        faults = self.cluster.faults
        return faults._take(kind, self.where(topic, partition)) if kind in faults._kinds else None

    def injected_error(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the error code injected by a test; 0 if there is none."""
        fault = self.fault(FaultKind.ERROR, topic, partition)
        return fault.code if fault else 0

    def injected_error_of_partition(self, topic: str, partition: int) -> int:
        """As `injected_error`, but only of rules that name a topic: the others are for the whole request."""
        faults = self.broker.cluster.faults
        if FaultKind.ERROR not in faults._kinds:
            return 0
        fault = faults._take(FaultKind.ERROR, self.where(topic, partition), names_topic=True)
        return fault.code if fault else 0


class Send(NamedTuple):
    """Write these bytes to a connection, in this order."""

    connection_id: int
    buffers: Sequence[Buffer]


class Close(NamedTuple):
    """Close a connection after its pending bytes are sent."""

    connection_id: int
    reason: str
    is_abrupt: bool = False  # close it now, and drop pending bytes: the broker died


class PauseReading(NamedTuple):
    """Stop reading from a connection: enough of its requests are waiting."""

    connection_id: int


class ResumeReading(NamedTuple):
    connection_id: int


Effect: TypeAlias = Send | Close | PauseReading | ResumeReading
