"""Metrics that clients push to brokers: what is wanted of them, and what came.

Each broker keeps when a client has asked and pushed, by the client's instance id.

Source: ClientMetricsManager and ClientMetricsInstance in Apache Kafka (KIP-714).
"""

import uuid
import zlib
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

DEFAULT_INTERVAL_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    """The metrics that all clients are asked for."""

    prefixes: tuple[str, ...] = ("*",)
    """Beginnings of the wanted metrics' names; `("*",)` is all, `()` none."""

    interval_s: float = DEFAULT_INTERVAL_S
    """Time between two pushes; as with real brokers at most five minutes."""

    is_delta: bool = True
    """Whether counters are since the last push; real brokers always want that."""

    max_bytes: int = 1024 * 1024
    """`telemetry.max.bytes`."""

    compression_types: tuple[int, ...] = (4, 3, 1, 2)
    """Numbers of the codecs, the preferred one first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval_s", min(self.interval_s, DEFAULT_INTERVAL_S))

    def id_for(self, instance_id: uuid.UUID) -> int:
        """Return a number that changes with the subscription."""
        return zlib.crc32(f"{self}{instance_id}".encode()) & 0x7FFFFFFF


class PushedMetrics(NamedTuple):
    """One push."""

    instance_id: uuid.UUID
    client_id: str | None
    node_id: int
    at: float
    """In seconds of the driver's clock."""

    is_last: bool
    compression_type: int
    data: bytes
    """As the client has compressed it."""


@dataclass(slots=True)
class ClientInstance:
    """One client, as one broker knows it."""

    subscription: MetricsSubscription
    asked_at: float = float("-inf")
    pushed_at: float = float("-inf")
    has_ended: bool = False

    def may_ask(self, now: float) -> bool:
        """Note a question for subscriptions, unless it comes too early."""
        if now - max(self.asked_at, self.pushed_at) < self.subscription.interval_s:
            return False
        self.asked_at = now
        return True

    def may_push(self, now: float) -> bool:
        """Note a push, unless it comes too early."""
        if self.asked_at <= self.pushed_at and now - self.pushed_at < self.subscription.interval_s:
            return False
        self.pushed_at = now
        return True


class ClientMetrics:
    """The subscription of the cluster, which may change at any time, and all pushes."""

    def __init__(self, subscription: MetricsSubscription | None, random: Random) -> None:
        self.subscription: MetricsSubscription | None = subscription
        self.pushes: list[PushedMetrics] = []
        """Accepted pushes, oldest first."""
        self._random = random
        self._instances: dict[tuple[int, uuid.UUID], ClientInstance] = {}

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def instance(self, node_id: int, instance_id: uuid.UUID) -> ClientInstance:
        """Return what a broker knows of a client; it forgets all when the subscription changes."""
        wanted = self.subscription or MetricsSubscription(prefixes=())
        found = self._instances.get((node_id, instance_id))
        if found is None or found.subscription != wanted:
            found = self._instances[node_id, instance_id] = ClientInstance(wanted)
        return found
