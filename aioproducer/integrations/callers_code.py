"""What the loop calls of the user's: functions whose result is awaited."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


class NotAwaitableError(TypeError):
    """A function that is no coroutine function. No record is at fault: each would be taken for poison."""


def to_await(name: str, result: object) -> Awaitable[object]:
    """Return what a function of the user's has returned, if it can be awaited.

    Args:
        name: of the argument that the function is.
        result: what it has returned.

    Raises:
        NotAwaitableError: names the argument.
    """
    if inspect.isawaitable(result):
        return result
    raise NotAwaitableError(f"{name} must be a coroutine function: it returned {type(result).__name__}")
