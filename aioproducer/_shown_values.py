"""Values of the user's in error messages: never too long, and never the cause of an error of their own; and hints."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from shlex import quote
from typing import Final, TypeVar

SelfT = TypeVar("SelfT")

_MOST_CHARACTERS: Final = 100


def shown(value: object) -> str:
    """Return a value's repr for a message, cut to 100 characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # a repr of the user's, or an int of more digits than Python converts
        if isinstance(value, int):
            return f"a number of {value.bit_length()} bits"
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def how_to_create(topic: str, *options: str) -> str:
    """Return the end of a sentence about a topic that does not exist: the command that creates it."""
    return f"create it with `{' '.join(('aioproducer topic create', quote(topic), *options))}`"


def in_any_state(show: Callable[[SelfT], str]) -> Callable[[SelfT], str]:
    """Wrap a `__repr__`: of an object whose constructor has raised, it says so instead of raising.

    Error reports show such objects: a `repr` that raises would take the place of the error itself.
    """

    @wraps(show)
    def shown_in_any_state(self: SelfT, /) -> str:
        try:
            return show(self)
        except AttributeError:
            return f"<{type(self).__name__} that was not made>"

    return shown_in_any_state
