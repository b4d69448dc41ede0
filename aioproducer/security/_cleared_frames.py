"""Calls that are given secrets: the frames of their errors hold none of them.

Error reports show the local variables of each frame: Sentry's by default, `pytest -l`, and the standard library's
`TracebackException(capture_locals=True)`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")
OwnerT = TypeVar("OwnerT")


def clears_frames(call: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """Wrap a function: if it raises, its frames and those below it keep their lines, and lose their variables.

    Frames of the caller stay as they are, and so do errors that were being handled before.
    """

    @wraps(call)
    def cleared(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> ResultT:
        handled = sys.exception()
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_frames(error, handled)
            raise

    return cleared


def clears_frames_of(*names: str) -> Callable[[type[OwnerT]], type[OwnerT]]:
    """Wrap methods of a class by `clears_frames`."""

    def wrapped(owner: type[OwnerT]) -> type[OwnerT]:
        for name in names:
            method = owner.__dict__[name]
            is_of_class = isinstance(method, classmethod)
            cleared = clears_frames(method.__func__ if is_of_class else method)
            setattr(owner, name, classmethod(cleared) if is_of_class else cleared)
        return owner

    return wrapped


def clear_frames(error: BaseException, handled: BaseException | None = None) -> None:
    """Clear the frames of an error and of its causes, but not of the one that is `handled`; running frames stay."""
    left: list[BaseException | None] = [error]
    seen = {id(handled)}
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        traceback.clear_frames(each.__traceback__)
