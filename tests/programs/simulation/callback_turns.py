"""Callbacks of one partition come in the order of its records, where many come at the same time."""

from tests.programs.simulation.history import History, Story
from tests.programs.simulation.plan import Plan


class CallbackTurns:
    """Sees the callbacks of records that were acknowledged.

    Args:
        plan: of the run; where the loop chooses who goes first, batches of one moment may change places.
        history: is told of those out of their turn.
    """

    def __init__(self, plan: Plan, history: History) -> None:
        # A batch that was appended and refused all the same is sent again behind those that follow it.
        self._is_watching = plan.schedule == "fifo" and plan.acks != 0 and "retriable code" not in plan.enabled
        self._history = history
        self._last: dict[int | None, Story] = {}

    def called_back(self, story: Story) -> None:
        """Look at a record whose callback was called just now."""
        if not self._is_watching:
            return
        before = self._last.get(story.partition)
        self._last[story.partition] = story
        if before is None or before.ended_at != story.ended_at or before.is_free != story.is_free:
            return
        if story.order < before.order:
            self._history.violated("ORDER", f"{story.record} is called back after {before.record}, which is behind it")
