"""Shared by all connections of one producer: the loop, timers, randomness, settings, counters."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aioproducer._network.refusals import Refusals
from aioproducer._network.repeated_closes import RepeatedCloses
from aioproducer._network.routes import Routes
from aioproducer._network.silence import Silence
from aioproducer._protocol.api_versions import NO_FEATURES, FinalizedFeatures
from aioproducer._protocol.framing import DEFAULT_MAX_FRAME_BYTES
from aioproducer.errors import BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from aioproducer._logs import EventLog
    from aioproducer._network.sasl_client import SaslClient
    from aioproducer._network.tls_reloader import TlsReloader
    from aioproducer._timing.retry_backoff import RandomSource


class ResponseBudget:
    """Bytes of incomplete responses, by connection; all together may hold a quarter more than the largest frame.

    If they hold more, the connection that holds most is closed: so a broker that begins large responses and does not
    end them does not affect the others. Responses that come in one piece are not counted.
    """

    def __init__(self, largest_frame: int) -> None:
        self.bound = largest_frame + largest_frame // 4
        self.total = 0
        self._held: dict[Callable[[KafkaError], None], int] = {}

    def note(self, close: Callable[[KafkaError], None], held: int) -> None:
        """Note how much a connection holds now; `close` closes the connection, and identifies it."""
        self.total += held - self._held.pop(close, 0)
        if held:
            self._held[close] = held
        while self.total > self.bound:
            largest = max(self._held, key=self._held.__getitem__)
            text = (
                f"{self._held[largest]} bytes of an answer have come, and its end has not; the answers under way on "
                f"all connections have {self.total} bytes, more than the {self.bound} allowed"
            )
            self.total -= self._held.pop(largest)
            largest(BrokerConnectionError(text))


class TimerHandle(Protocol):
    """A scheduled callback, as `asyncio.TimerHandle`."""

    def cancel(self) -> None:
        """Do not call."""


class Timers(Protocol):
    """Timers; `_timing/timers.py` implements them."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> TimerHandle:
        """Call back with the time, at `when` (monotonic seconds) or soon after."""


def nothing() -> None:
    """Answer an event that concerns no part."""


@dataclass(slots=True)
class NetworkEvents:
    """Functions that the network calls on the loop; all are cheap. Single requests have nothing that answers them."""

    wake: Callable[[], None] = nothing
    """Something may have become possible, such as another request to a node."""
    node_failed: Callable[[], None] = nothing
    """A node that metadata names could not be connected to, or its connection was lost."""
    node_tried_again: Callable[[], None] = nothing
    """An attempt to connect to a node that has failed is wanted; it may hang."""


class NetworkSettings(NamedTuple):
    """Options of the network, with Kafka's defaults; milliseconds and bytes."""

    request_timeout_ms: int = 30_000  # a request that has been the oldest for this long closes its connection
    max_in_flight: int = 5  # unanswered requests per connection
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 10_000
    """Connect and handshake, per address; doubles with every failed attempt in a row, up to the next option."""
    connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000  # an unused connection is closed after this; negative = never
    send_buffer_bytes: int = 131_072  # SO_SNDBUF; -1 leaves it to the operating system
    receive_buffer_bytes: int = 32_768  # SO_RCVBUF; -1 leaves it to the operating system
    refusal_pause_max_ms: int = 10_000  # longest pause between attempts while a broker refuses the credentials
    write_buffer_bytes: int = 512 * 1024  # with more unsent bytes in the transport a node takes no further request
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES  # a longer response closes the connection
    software_version: str = "unknown"  # of this library, for the metrics of brokers
    routes: Routes = Routes()


@dataclass(slots=True)
class NetworkCounters:
    """Totals since the start, defined as in Kafka; of one node, or summed over nodes."""

    requests: int = 0  # Kafka: request-total
    responses: int = 0  # Kafka: response-total
    bytes_out: int = 0  # handed to transports; Kafka: outgoing-byte-total
    bytes_in: int = 0  # Kafka: incoming-byte-total
    request_latency_s: float = 0.0  # sum over `responses`, from the hand-over to the response
    produce_responses: int = 0  # to Produce requests
    produce_latency_s: float = 0.0  # sum over `produce_responses`; Kafka: request-latency-avg
    connections_created: int = 0  # Kafka: connection-creation-total
    connections_closed: int = 0  # Kafka: connection-close-total
    connection_failures: int = 0  # attempts to connect that failed
    authentications: int = 0  # Kafka: successful-authentication-total
    authentication_failures: int = 0  # Kafka: failed-authentication-total
    reauthentications: int = 0  # Kafka: successful-reauthentication-total
    reauthentication_failures: int = 0  # Kafka: failed-reauthentication-total
    reauthentication_latency_s: float = 0.0  # sum over `reauthentications`

    # The largest since `forget_recent`
    recent_request_size: int = 0
    recent_produce_latency_s: float = 0.0
    recent_reauthentication_latency_s: float = 0.0

    def note_reauthentication(self, latency_s: float) -> None:
        """Count a session that was renewed."""
        self.reauthentications += 1
        self.reauthentication_latency_s += latency_s
        self.recent_reauthentication_latency_s = max(self.recent_reauthentication_latency_s, latency_s)

    def forget_recent(self) -> None:
        """Begin the next recent maxima."""
        self.recent_request_size = 0
        self.recent_produce_latency_s = self.recent_reauthentication_latency_s = 0.0

    @classmethod
    def total_of(cls, rows: Iterable[NetworkCounters]) -> NetworkCounters:
        rows = list(rows)
        total = cls(*map(sum, zip(*map(_values, rows), strict=True)))
        for name in _RECENT:
            setattr(total, name, max((getattr(row, name) for row in rows), default=0))
        return total


_RECENT: Final = tuple(each.name for each in fields(NetworkCounters) if each.name.startswith("recent_"))
_values: Final = attrgetter(*(each.name for each in fields(NetworkCounters)))  # one call for all fields of a row

MAX_NODE_ROWS: Final = 1000


class NodeCounters:
    """Counters by node id, also of nodes that are gone; past `MAX_NODE_ROWS` nodes the rest is one row."""

    __slots__ = ("_others", "_rows")

    def __init__(self) -> None:
        self._rows: dict[int | None, NetworkCounters] = {}
        self._others: NetworkCounters | None = None

    def of(self, node_id: int) -> NetworkCounters:
        row = self._rows.get(node_id)
        if row is None and len(self._rows) >= MAX_NODE_ROWS:
            row = self._others = self._others or NetworkCounters()
        elif row is None:
            row = self._rows[node_id] = NetworkCounters()
        return row

    def rows(self) -> dict[int | None, NetworkCounters]:
        """Return the rows by node id; that of all others has the key None."""
        rows = self._rows.copy()  # other threads may read them
        if self._others is not None:
            rows[None] = self._others
        return rows

    def total(self) -> NetworkCounters:
        return NetworkCounters.total_of(self.rows().values())


@dataclass(slots=True)
class ClusterFeatures:
    """The cluster's finalized features, by the newest report of any broker."""

    newest: FinalizedFeatures = NO_FEATURES
    transaction_version: int = 0  # of the newest report

    def take(self, found: FinalizedFeatures) -> None:
        if found.epoch >= self.newest.epoch:
            self.replace(found)

    def replace(self, found: FinalizedFeatures) -> None:
        """Take a report of another cluster: its epochs cannot be compared with those before."""
        self.newest = found
        self.transaction_version = found.transaction_version


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSecurity:
    """Steps of connections before the first request; without any of it they are plaintext."""

    tls: TlsReloader | None = None
    sasl: SaslClient | None = None


def _plaintext(_loop: asyncio.AbstractEventLoop) -> ConnectionSecurity | None:
    return None


class ClusterAccess(NamedTuple):
    """How connections for single requests reach a cluster, by the options of a producer's configuration."""

    routes: Routes = Routes()
    security: Callable[[asyncio.AbstractEventLoop], ConnectionSecurity | None] = _plaintext


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkContext:
    """Created by the `NetworkClient` for all its connections."""

    loop: asyncio.AbstractEventLoop
    timers: Timers
    random: RandomSource
    events: NetworkEvents
    log: EventLog
    client_id: str
    settings: NetworkSettings
    security: ConnectionSecurity | None = None
    counters: NetworkCounters = field(default_factory=NetworkCounters)
    """Counters of one node, in the context of its connections."""
    counters_by_node: NodeCounters = field(default_factory=NodeCounters)
    features: ClusterFeatures = field(default_factory=ClusterFeatures)
    silence: Silence = field(default_factory=Silence)
    refusals: Refusals = field(default_factory=partial(Refusals, NetworkSettings().refusal_pause_max_ms))
    repeated_closes: RepeatedCloses = field(default_factory=RepeatedCloses)
    response_budget: ResponseBudget = field(default_factory=partial(ResponseBudget, DEFAULT_MAX_FRAME_BYTES))
    connection_ids: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    """Numbers connections; none is used twice."""
    look_up_turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for one turn of the loop before a name is looked up: each look-up starts a thread, and a hundred that start
    in one turn hold the loop up."""

    def schedule(self, when: float, callback: Callable[[float], None]) -> TimerHandle:
        return self.timers.schedule(when, callback)
