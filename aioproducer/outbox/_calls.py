"""Calls of the database that end where their caller is cancelled: a connection in a transaction may keep its locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

CLOSE_S: Final = 5.0
LEAST_LIMIT_S: Final = 60.0
"""Longer than pools and databases wait by default, whose errors say more."""
LEASES_IN_LIMIT: Final = 3
CANCEL_AGAIN_S: Final = 1.0
"""Until what goes on after its cancellation is cancelled again: a driver that meets an error may lose one."""

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class Called(Protocol):
    """An object with such calls."""

    calls: set[asyncio.Future[Any]]
    """Those that run."""
    limit_s: float
    """How long a call may take."""


CalledT = TypeVar("CalledT", bound=Called)


def uninterrupted(
    method: Callable[Concatenate[CalledT, ParametersT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[CalledT, ParametersT], Coroutine[Any, Any, ResultT]]:
    """Let a call go on where its caller is cancelled; raise TimeoutError where the database does not answer."""

    @wraps(method)
    async def run(self: CalledT, /, *args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        task = asyncio.ensure_future(method(self, *args, **kwargs))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        task.add_done_callback(fetch_error)
        try:
            done, _ = await asyncio.wait([task], timeout=self.limit_s)
        except asyncio.CancelledError:
            _bound(task, self.limit_s)
            raise
        if not done:
            _bound(task, 0.0)
            raise TimeoutError(f"it has not answered for {self.limit_s:g} s")
        return task.result()

    return run


def _bound(task: asyncio.Future[Any], limit_s: float) -> None:
    """Cancel a call after a time: its connection may be dead without a word, and it would keep it."""
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        if not task.done():
            task.cancel()
            loop.call_later(CANCEL_AGAIN_S, cancel)

    timer = loop.call_later(limit_s, cancel)
    task.add_done_callback(lambda _: timer.cancel())


def limit_of(lease_s: float) -> float:
    """Return how long a call of a relay may take."""
    return max(LEASES_IN_LIMIT * lease_s, LEAST_LIMIT_S)


def fetch_error(task: asyncio.Future[Any]) -> None:
    """Have asyncio not report the error of a task whose caller was cancelled."""
    if not task.cancelled():
        task.exception()


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Do what tidies up, however often the caller is cancelled meanwhile: a connection that is left out stays open."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def ended(called: Called) -> bool:
    """Wait until the calls of an object have ended; cancel those that take too long, and return whether none did."""
    calls = [*called.calls]
    if calls:
        await asyncio.wait(calls, timeout=CLOSE_S)
    for call in calls:
        call.cancel()
    return all(call.done() for call in calls)
