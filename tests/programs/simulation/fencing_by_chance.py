"""Knows what may fence a producer without a successor: requests that are served late.

A first InitProducerId fences the current owner of the transactional id. One for another epoch aborts the transaction
that it finds, under an epoch that is not reported: a transaction that the producer began after it had waited for such a
copy as long as it promises to, or one that the successor began, or one that a late AddPartitionsToTxn opened again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Claim(NamedTuple):
    """Under which identity something is asked."""

    producer_id: int
    epoch: int


Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Lost:
    """A request for another epoch whose response is no longer waited for."""

    life: int
    at: float


class FencingByChance:
    """Looks at InitProducerId, and at what opens transactions.

    Args:
        clock: seconds.
        waited_for_s: how long a producer begins no transaction after a request for another epoch was lost.
    """

    def __init__(self, clock: Callable[[], float], waited_for_s: float) -> None:
        self._clock = clock
        self._waited_for_s = waited_for_s
        self._life = 0  # which producer it is, by its first InitProducerId
        self._first: set[Key] = set()  # first InitProducerId on their way
        self._renewals: dict[Key, int] = {}  # those for another epoch on their way: of which life
        self._lost: dict[Key, _Lost] = {}
        self._begun_late: set[Claim] = set()
        self.times = 0

    def first_asked(self, key: Key) -> None:
        self._first.add(key)
        self._life += 1

    def renewal_asked(self, key: Key) -> None:
        """A producer asks for another epoch."""
        self._renewals[key] = self._life

    def answered(self, key: Key) -> bool:
        """Note a response; return whether it was to a request for another epoch."""
        self._first.discard(key)
        return self._renewals.pop(key, None) is not None

    def connection_lost(self, number: int) -> None:
        """Note a lost connection: its requests may be served at any time."""
        first = {key for key in self._first if key[0] == number}
        self.times += len(first)
        self._first -= first
        for key in [key for key in self._renewals if key[0] == number]:
            self._lost[key] = _Lost(self._renewals.pop(key), self._clock())

    def begun_late(self, claim: Claim) -> None:
        """A request without a waiter has opened a transaction, after the end of its own."""
        self._begun_late.add(claim)

    def ended(self, claim: Claim) -> None:
        """The transaction of this identity is over."""
        self._begun_late.discard(claim)

    def has_aborted(self, key: Key, claim: Claim) -> None:
        lost = self._lost.get(key)
        is_late = lost is not None and (lost.life < self._life or self._clock() >= lost.at + self._waited_for_s)
        self.times += is_late or claim in self._begun_late
