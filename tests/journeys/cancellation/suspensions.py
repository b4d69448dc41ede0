"""Suspensions of a coroutine, and a strike at one of them.

A call is driven step by step: each time it hands something to the event loop, it is told which time that is. So the
points at which a call can be cancelled are counted by running it once, and then reached one after another.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from enum import Enum

LATER_S = 1.0


class Moment(Enum):
    SUSPENDED = "as it suspends"
    LATER = "a second after it suspended"
    AWAKENED = "as what it waited for has come"


class Watched:
    """A coroutine that reports each of its suspensions."""

    def __init__(self, coroutine: Coroutine[object, object, object], note: Callable[[int, object], None]) -> None:
        self._coroutine = coroutine
        self._note = note
        self.suspensions = 0
        self.is_suspended = False

    def __await__(self) -> Generator[object, None, object]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                awaited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            self.suspensions += 1
            self.is_suspended = True
            self._note(self.suspensions, awaited)
            try:
                yield awaited
            except BaseException as thrown:  # noqa: BLE001  # the coroutine gets any of them
                error = thrown
            self.is_suspended = False


@dataclass(slots=True)
class Ending:
    """End of a call, apart from the tasks around it."""

    error: BaseException | None = None
    has_ended: bool = False

    async def of(self, call: Coroutine[object, object, object]) -> None:
        try:
            await call
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.has_ended = True


@dataclass(slots=True)
class Strike:
    """Does `act` once, or at two suspensions in a row.

    Args:
        at: number of the suspension, from 1; 0 is never.
        moment: when, at that suspension.
        turns: so many turns of the loop later; never, if the call has gone on by then.
        times: 2 strikes again at the next suspension, as it suspends: in the cleaning up after the first.
    """

    at: int = 0
    moment: Moment = Moment.SUSPENDED
    turns: int = 0
    times: int = 1
    act: Callable[[], object] = lambda: None
    struck: int = 0
    is_turn: bool = False
    """The suspension struck at is a bare yield, which ends in the next turn of the loop: a way that takes a turn itself
    comes too late."""
    points: list[float] = field(default_factory=list)
    ended_at: float = 0.0
    ending: Ending = field(default_factory=Ending)

    def lasts(self, at: int, seconds: float) -> bool:
        until = [*self.points, self.ended_at][at]
        return until - self.points[at - 1] > seconds

    def on(self, call: Callable[[], Coroutine[object, object, object]]) -> Coroutine[object, object, None]:
        return self._run(call)

    async def _run(self, call: Callable[[], Coroutine[object, object, object]]) -> None:
        watched = Watched(self.ending.of(call()), lambda number, awaited: self._note(watched, number, awaited))
        try:
            await watched
        finally:
            self.ended_at = asyncio.get_running_loop().time()

    def _note(self, watched: Watched, number: int, awaited: object) -> None:
        loop = asyncio.get_running_loop()
        self.points.append(loop.time())
        if self.struck:
            if self.struck < self.times:
                self._strike()
        elif number == self.at:
            self._plan(watched, awaited)

    def _plan(self, watched: Watched, awaited: object) -> None:
        self.is_turn = awaited is None
        match self.moment:
            case Moment.SUSPENDED:
                self._strike_after(watched, self.turns)
            case Moment.LATER:
                asyncio.get_running_loop().call_later(LATER_S, self._strike_if_still, watched)
            case Moment.AWAKENED if isinstance(awaited, asyncio.Future):
                awaited.add_done_callback(lambda _: self._strike())  # before the task's own: it has not run yet
            case _:
                pass  # it waits for the next turn of the loop, and nothing can come before that

    def _strike_after(self, watched: Watched, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._strike_after, watched, turns - 1)
        else:
            self._strike_if_still(watched)

    def _strike_if_still(self, watched: Watched) -> None:
        if watched.suspensions == self.at and watched.is_suspended:
            self._strike()

    def _strike(self) -> None:
        self.struck += 1
        self.act()
