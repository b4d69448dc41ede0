"""Looks inside a running transactional producer: whether it asks its coordinators what there is to ask."""

from collections.abc import Callable
from typing import Final

from aioproducer._transactions.states import TransactionState
from tests.programs.simulation.inside import Inside

SLACK_S: Final = 0.02
"""Beside the pause: timers, and the pause after markers, which is a hundredth of a second at most."""


class TransactionsInside(Inside):
    """The parts of a transactional producer that runs."""

    def check_asking(self, violated: Callable[[str, str], None], *, longest_pause_s: float) -> None:
        """I20: what a coordinator is to be asked is asked, or will be when the longest pause is over."""
        runner = None if self._running is None else self._running.transactions
        if self._running is None or runner is None or not self._running.metadata.cluster.nodes:
            return
        manager, alarm = runner._manager, runner._alarm  # noqa: SLF001  # invariants are about what is inside
        is_busy = manager._is_asking or runner._wanted.is_set()  # noqa: SLF001  # as above
        if is_busy or manager.state is TransactionState.FATAL_ERROR:
            return
        wanted = manager._wanted()  # noqa: SLF001  # as above
        if wanted is None:
            return
        now = self._running.loop.time()
        if alarm is None:
            violated("I20", f"{wanted.api.name} is wanted, and nobody asks: {manager!r}")
        elif alarm.when() > now + longest_pause_s + SLACK_S:
            violated("I20", f"{wanted.api.name} is wanted, and is asked in {alarm.when() - now:.3f} s: {manager!r}")
