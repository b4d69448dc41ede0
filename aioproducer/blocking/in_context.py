"""Awaits in another context than the task's."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from contextvars import Context

ResultT = TypeVar("ResultT")


@types.coroutine
def run_in_context(awaitable: Awaitable[ResultT], context: Context) -> Generator[object, object, ResultT]:
    """Await something whose every step runs in another context than the task's."""
    steps = cast("Generator[object, object, ResultT]", awaitable.__await__())
    try:
        waits_for = context.run(steps.send, None)
        while True:
            try:
                answer = yield waits_for
            except BaseException as error:  # noqa: BLE001  # is the awaitable's: a cancellation, for example
                waits_for = context.run(steps.throw, error)
            else:
                waits_for = context.run(steps.send, answer)
    except StopIteration as end:
        return cast("ResultT", end.value)
