"""Where a call is struck, and how a caller gives up: by hand, by time, by a sibling, by the loop's end.

A call is driven step by step: each time it hands something to the event loop, it is told which time that is. So the
points at which it can be cancelled are counted by running it once, and then reached one after another.
Each way runs a call in which a `Strike` waits, and returns when everything around the call has ended. What the call
itself ended with is in the strike.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from enum import Enum

import anyio

from aioproducer import KafkaError
from tests.fakes.virtual_loop import now

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
            self.ended_at = now()

    def _note(self, watched: Watched, number: int, awaited: object) -> None:
        self.points.append(now())
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


# The ways: asyncio's and anyio's


Call = Callable[[], Coroutine[object, object, object]]
Way = Callable[[Call, Strike], Awaitable[None]]
TimedWay = Callable[[Call, Strike, float], Awaitable[None]]


class SiblingError(Exception):
    """Failure of the other task of a group."""


async def cancel(call: Call, strike: Strike) -> None:
    task = asyncio.ensure_future(soon(strike.on(call)))
    strike.act = task.cancel
    await ended(task)


async def cancel_twice(call: Call, strike: Strike) -> None:
    """Cancel the task, and again in the same turn of the loop."""
    task = asyncio.ensure_future(soon(strike.on(call)))

    def act() -> None:
        task.cancel()
        task.get_loop().call_soon(task.cancel)

    strike.act = act
    await ended(task)


async def cancel_in_cleanup(call: Call, strike: Strike) -> None:
    """Cancel the task, and again while it cleans up: in the call, or else in the caller's own `finally`."""

    async def caller() -> None:
        try:
            await call()
        finally:
            await asyncio.sleep(0.001)

    strike.times = 2
    await cancel(caller, strike)


async def timeout_now(call: Call, strike: Strike) -> None:
    """Let an `asyncio.timeout` be over at once."""
    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(None) as limit:
            strike.act = lambda: limit.reschedule(now())
            await strike.on(call)


async def sibling_fails(call: Call, strike: Strike) -> None:
    """Let another task of the same `asyncio.TaskGroup` fail."""
    failing = asyncio.Event()
    strike.act = failing.set

    async def sibling() -> None:
        await failing.wait()
        raise SiblingError

    with contextlib.suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            other = group.create_task(sibling())
            await group.create_task(strike.on(call))
            other.cancel()


async def scope(call: Call, strike: Strike) -> None:
    """Cancel an anyio scope, which cancels again in every turn until the call has gone."""
    with contextlib.suppress(KafkaError), anyio.CancelScope() as around:
        strike.act = around.cancel
        await strike.on(call)


async def anyio_group(call: Call, strike: Strike) -> None:
    async def quietly() -> None:
        with contextlib.suppress(KafkaError):
            await strike.on(call)

    async with anyio.create_task_group() as group:
        strike.act = group.cancel_scope.cancel
        group.start_soon(quietly)


async def loop_shutdown(call: Call, strike: Strike) -> None:
    """Cancel every task there is but this one, as `asyncio.run` does at its end."""
    task = asyncio.ensure_future(soon(strike.on(call)))
    here = asyncio.current_task()

    def act() -> None:
        for each in asyncio.all_tasks() - {here}:
            each.cancel()

    strike.act = act
    await ended(task)


async def wait_for(call: Call, strike: Strike, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, KafkaError):
        await asyncio.wait_for(strike.on(call), seconds)


async def move_on_after(call: Call, strike: Strike, seconds: float) -> None:
    with contextlib.suppress(KafkaError), anyio.move_on_after(seconds):
        await strike.on(call)


async def soon(call: Coroutine[object, object, None]) -> None:
    """Begin in the next turn: an eager task would be struck before there is a task to cancel."""
    await asyncio.sleep(0)
    await call


async def ended(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KafkaError):
        raise error


WAYS: dict[str, Way] = {
    "cancel": cancel,
    "cancel twice": cancel_twice,
    "cancel in the cleanup": cancel_in_cleanup,
    "asyncio.timeout(0)": timeout_now,
    "a sibling of the TaskGroup fails": sibling_fails,
    "anyio.CancelScope": scope,
    "anyio task group": anyio_group,
    "loop shutdown": loop_shutdown,
}
AT_ONCE = {cancel, cancel_twice, cancel_in_cleanup, loop_shutdown}
"""Ways that cancel the task at once: the others take a turn more, and the call may have ended by then."""

TIMED_WAYS: dict[str, TimedWay] = {"asyncio.wait_for": wait_for, "anyio.move_on_after": move_on_after}
