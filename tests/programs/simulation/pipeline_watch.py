"""Watches how many batches of a partition a transactional producer has in flight: one until it may have more.

A broker without state takes any first sequence. So a partition has one batch on its way until one under the present
identity was acknowledged on this connection, and again after a refusal. Brokers of V2 refuse a first sequence other
than 0: there a partition that had no trouble need not wait.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.testing.fake_broker.wire.produce_wire import ProduceResult
from tests.programs.simulation.history import History

_GOOD: Final = frozenset((int(ErrorCode.NONE), int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
"""A copy is as good as what it is a copy of."""

Key = tuple[int, int]

Who = tuple[int, int, int]


class PipelineWatch:
    """Sees the batches of one run."""

    def __init__(self, history: History) -> None:
        self._violated = history.violated
        self._on_wire: dict[Key, list[Who]] = defaultdict(list)
        self._codes: dict[Key, dict[int, int]] = {}  # of answers that have not arrived, by partition
        self._confirmed: dict[Who, int] = {}  # the connection on which a batch was acknowledged
        self._had_trouble: set[Who] = set()

    def sent(self, key: Key, who: Who, *, is_v1: bool) -> None:
        """Look at a batch as it is written."""
        others = sum(each == who for batches in self._on_wire.values() for each in batches)
        is_free = self._confirmed.get(who) == key[0] or not (is_v1 or who in self._had_trouble)
        if others and not is_free:
            self._violated(
                "IN_FLIGHT", f"{others + 1} batches of (partition, id, epoch) {who} before one is acknowledged"
            )
        self._on_wire[key].append(who)

    def observed(self, key: Key, results: Sequence[ProduceResult]) -> list[int]:
        """Note what a broker answers; returns the codes."""
        self._codes[key] = {each.index: each.error_code for each in results}
        return [*self._codes[key].values()]

    def answered(self, key: Key) -> None:
        """Look at an answer as it arrives."""
        codes = self._codes.pop(key, {})
        for who in self._on_wire.pop(key, ()):
            if codes.get(who[0], -1) in _GOOD:
                self._confirmed[who] = key[0]
            else:
                self._doubt(who)

    def lost(self, connection: int) -> None:
        """A connection is gone, and with it what was in flight on it."""
        for key in [key for key in self._on_wire if key[0] == connection]:
            for who in self._on_wire.pop(key):
                self._doubt(who)

    def _doubt(self, who: Who) -> None:
        self._confirmed.pop(who, None)
        self._had_trouble.add(who)
