"""A lock that Ctrl-C never leaves locked."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar, TypeVarTuple

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

def locked(
    lock: AbstractContextManager[bool, None], function: Callable[[*_Arguments], _Result], /, *arguments: *_Arguments
) -> _Result:
    """Call a function while a lock is held, and return what it returns.

    Args:
        lock: one that is written in C, as `threading.Lock` and `threading.RLock` are.
        function: what is done meanwhile; its errors are raised.
        arguments: of the function.
    """
