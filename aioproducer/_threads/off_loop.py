"""Runs blocking work in a daemon thread: neither the interpreter's exit nor the loop's close waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from aioproducer._threads.real_threads import start_thread

ResultT = TypeVar("ResultT")
ErrorT = TypeVar("ErrorT", bound=Exception)


async def run_in_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """Return the result of `work`; if the caller is cancelled, the thread goes on and its result is dropped.

    Errors lose their frames: those may hold passwords and tokens, and error reports show local variables.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # raised by the future
            settle = _failing(future, without_frames(error))
        else:
            settle = _ending(future, result)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle)

    start_thread(run, name)
    return await future


def _failing(future: asyncio.Future[ResultT], error: Exception) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_exception(error)


def _ending(future: asyncio.Future[ResultT], result: ResultT) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(result)


def without_frames(error: ErrorT) -> ErrorT:
    """Return the error, without the frames of its tracebacks and of its causes'."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
