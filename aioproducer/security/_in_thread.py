"""Runs a blocking token provider in a daemon thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def run_in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Return the result of `work`, done in a daemon thread, which nothing waits for at the end of the program."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: ResultT | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # there is one without an error

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # raised where it is awaited
            failure = _without_frames(error)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="aioproducer-token", daemon=True).start()
    return await answer


def _without_frames(error: Exception) -> Exception:
    # The frames of the provider hold secrets, and error reports show local variables.
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
