"""The ways in which a caller gives up: asyncio's and anyio's, by hand, by time, by a sibling, by the loop's end.

Each runs a call in which a `Strike` waits, and returns when everything around the call has ended. What the call
itself ended with is in the strike.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine

import anyio

from aioproducer import KafkaError
from tests.journeys.cancellation.suspensions import Strike

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
            strike.act = lambda: limit.reschedule(asyncio.get_running_loop().time())
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
