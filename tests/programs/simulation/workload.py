"""Common part of the callers of one run, and the outcomes of what they sent."""

import asyncio
import math
from collections.abc import Callable

from aioproducer import Producer, RecordFilteredError
from aioproducer._accumulator.delivery_deadlines import GRAIN_S
from tests.programs.simulation.excuses import check_ends
from tests.programs.simulation.history import End, History, Story
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.promise_watches import CallbackTurns

TICK_S = 0.002  # tolerance of a deadline: one timer tick, and the following turns of the loop


class Workload:
    """Shared by all callers of one run."""

    def __init__(
        self, plan: Plan, producer: Producer, history: History, *, topic: str, on_beat: Callable[[float], float]
    ) -> None:
        self.plan = plan
        self.producer = producer
        self.history = history
        self.topic = topic
        self.on_beat = on_beat
        self.deliveries: list[Story] = []  # stories with a delivery, in the order in which these were given
        self.is_closing = False
        self.healthy_since = 0.0  # virtual seconds; 0.0 while things go wrong
        self.now = history.clock
        self.turns = CallbackTurns(plan, history)
        self.delivery_timeout_s = plan.number("delivery_timeout_ms") / 1000
        self.max_block_s = plan.number("max_block_ms") / 1000

    def check_bound(self, what: str | Story, began: float, bound_s: float) -> None:
        """ENDS_ONCE: what has a time of its own to end in has ended by then."""
        took = self.now() - began
        if took > bound_s + TICK_S:
            name = what if isinstance(what, str) else f"{what.verb} {what.record}"
            self.history.violated("ENDS_ONCE", f"{name} took {took:.6f} s, more than {bound_s:.6f}")

    def lives_s(self, story: Story) -> float:
        """Return the seconds until a record has ended."""
        return self.delivery_timeout_s if story.deadline_s is None else story.deadline_s + GRAIN_S

    def watch_deadline(self, story: Story) -> None:
        """ENDS_ONCE: look at a record when its own deadline is over."""
        asyncio.get_running_loop().call_later(self.lives_s(story) + TICK_S, self._look_at_deadline, story)

    def _look_at_deadline(self, story: Story) -> None:
        if story.delivery is not None and not story.delivery.done():
            self.history.violated("ENDS_ONCE", f"{story.record} is open past its deadline of {story.deadline_s} s")

    def resolve(self) -> None:
        for story in self.deliveries:
            delivery = story.delivery
            assert delivery is not None
            if delivery.cancelled():
                story.give_up(self.now())
                continue
            if not delivery.done():
                continue
            told = (story.end, story.offset)
            error = delivery.exception()
            if error is not None and self.history.secrecy is not None:
                self.history.secrecy.look_at_error(error)
            if error is None:
                story.acknowledge(delivery.result(), story.ended_at)
            else:
                story.fail(error, story.ended_at)
            if told[0] is not End.OPEN and told[0] is not End.GIVEN_UP and told != (story.end, story.offset):
                self.history.violated("ENDS_ONCE", f"{story.record} ended twice: {told}, {(story.end, story.offset)}")
        healed_at = self.healthy_since - self.delivery_timeout_s if self.healthy_since else math.inf
        for violation in check_ends(self.history.stories, self.plan, healed_at):
            self.history.violated(*violation)
        self._check_told()

    def _check_told(self) -> None:
        """FLUSH: what failed unseen, flushes and closes have said; but for what was dropped on purpose."""
        left = [story for story in self.history.stories if story.is_left and story.error and not _is_filtered(story)]
        if len(left) > self.history.undelivered and not self.plan.family.closes_early:
            told = self.history.undelivered
            self.history.violated("FLUSH", f"{len(left)} records failed unseen, and {told} were told: {left[0].record}")


def _is_filtered(story: Story) -> bool:
    return story.error.startswith(RecordFilteredError.__name__)
