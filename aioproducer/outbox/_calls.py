"""Calls of the database that end where their caller is cancelled: a connection in a transaction may keep its locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

CLOSE_S: Final = 5.0

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class Called(Protocol):
    """An object with such calls."""

    calls: set[asyncio.Future[Any]]
    """Those that run."""


CalledT = TypeVar("CalledT", bound=Called)


def uninterrupted(
    method: Callable[Concatenate[CalledT, ParametersT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[CalledT, ParametersT], Coroutine[Any, Any, ResultT]]:
    """Let a call go on where its caller is cancelled."""

    @wraps(method)
    async def run(self: CalledT, /, *args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        task = asyncio.ensure_future(method(self, *args, **kwargs))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        task.add_done_callback(fetch_error)
        await asyncio.wait([task])
        return task.result()

    return run


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
