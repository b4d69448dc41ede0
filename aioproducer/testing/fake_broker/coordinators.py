"""The brokers that coordinate consumer groups and transactional ids, and the producer ids they give.

A key's coordinator stays while its broker lives. Afterwards, or when a test moves it, another one takes over and reads
the state first: 14 COORDINATOR_LOAD_IN_PROGRESS for `load_s`. All state is the cluster's, so only requests that wait in
a consumer group are lost: they get 16 NOT_COORDINATOR. Each change raises the coordinator epoch, which transaction
markers carry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from aioproducer.testing.fake_broker.wire import codes


class CoordinatorKind(IntEnum):
    """The kind of key of a coordinator, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(slots=True)
class _Seat:
    node_id: int
    epoch: int = 0
    ready_at: float = float("-inf")


class CoordinatorTable:
    """The coordinators of all keys; a new one reads for `load_s` before it serves."""

    def __init__(
        self, live_nodes: Callable[[], list[int]], load_s: float, *, unload_group: Callable[[str, float], None]
    ) -> None:
        self._live_nodes = live_nodes
        self._load_s = load_s
        self._unload_group = unload_group
        self._seats: dict[tuple[CoordinatorKind, str], _Seat] = {}

    def node_of(self, kind: CoordinatorKind, key: str, now: float) -> int:
        return self._seat(kind, key, now).node_id

    def epoch_of(self, kind: CoordinatorKind, key: str, now: float) -> int:
        return self._seat(kind, key, now).epoch

    def error_at(self, node_id: int, kind: CoordinatorKind, key: str, *, now: float) -> int:
        """Return the error of a request about a key to this broker; 0 if it is the coordinator."""
        seat = self._seat(kind, key, now)
        if seat.node_id != node_id:
            return codes.NOT_COORDINATOR
        return codes.COORDINATOR_LOAD_IN_PROGRESS if now < seat.ready_at else 0

    def move(self, kind: CoordinatorKind, key: str, node_id: int, *, now: float) -> None:
        """Make another broker the coordinator of a key; ValueError if it is not up."""
        if node_id not in self._live_nodes():
            raise ValueError(f"node {node_id} is not up")
        self._seat(kind, key, now)
        self._change(kind, key, node_id, now=now)

    def _seat(self, kind: CoordinatorKind, key: str, now: float) -> _Seat:
        live = self._live_nodes()
        seat = self._seats.get((kind, key))
        if seat is None:
            seat = self._seats[kind, key] = _Seat(live[crc32(key.encode()) % len(live)])
        elif seat.node_id not in live and live:
            self._change(kind, key, live[crc32(key.encode()) % len(live)], now=now)
        return seat

    def _change(self, kind: CoordinatorKind, key: str, node_id: int, *, now: float) -> None:
        seat = self._seats[kind, key]
        seat.node_id = node_id
        seat.epoch += 1
        seat.ready_at = now + self._load_s
        if kind is CoordinatorKind.GROUP:
            self._unload_group(key, now)


class ProducerIds:
    """Hands out producer ids; the first is available `load_s` after the first request."""

    def __init__(self, load_s: float) -> None:
        self._load_s = load_s
        self._loaded_at: float | None = None
        self._next = 1000

    def take(self, now: float) -> int | None:
        if self._loaded_at is None:
            self._loaded_at = now + self._load_s
        if now < self._loaded_at:
            return None
        self._next += 1
        return self._next - 1
