"""FLUSH, the other way round: a flush waits for what was accepted before it and for nothing else."""

import asyncio
from collections.abc import Callable, Sequence

from aioproducer import RecordMetadata
from tests.programs.simulation.history import End, Story


class FlushWatch:
    """Knows when the last record that one flush waits for has ended."""

    def __init__(self, stories: Sequence[Story], now: Callable[[], float]) -> None:
        self._stories = [story for story in stories if not _has_ended(story)]
        self._is_unknown = any(_is_out_of_sight(story) for story in stories)
        self._now = now
        self._last = now()
        watched = [story.delivery for story in self._stories if story.delivery is not None]
        for story in self._stories:
            story.is_left = False  # it is retrieved now
        self._missing = len(watched)
        self._others = [story for story in self._stories if story.delivery is None]
        for delivery in watched:
            delivery.add_done_callback(self._note)

    def _note(self, _: asyncio.Future[RecordMetadata]) -> None:
        self._missing -= 1
        self._last = self._now()

    def overtime_s(self) -> float:
        """Seconds that the flush went on without need; 0.0 if that cannot be known."""
        if self._is_unknown or self._missing or any(_is_out_of_sight(story) for story in self._stories):
            return 0.0
        if any(story.end is End.OPEN or story.verb == "enqueue" for story in self._others):
            return 0.0  # accepted without anybody who saw it end
        return self._now() - max([self._last, *(story.ended_at for story in self._others)])


def _has_ended(story: Story) -> bool:
    return story.end is not End.OPEN or (story.delivery is not None and story.delivery.done())


def _is_out_of_sight(story: Story) -> bool:
    """Whether the record may be on its way although its caller has turned away."""
    return story.end is End.GIVEN_UP or (story.delivery is not None and story.delivery.cancelled())
