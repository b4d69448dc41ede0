"""Values of the user's in error messages: never too long, and never the cause of an error of their own; and hints."""

from __future__ import annotations

from shlex import quote
from typing import Final

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


def how_to_create(topic: str) -> str:
    """Return the end of a sentence about a topic that does not exist: the command that creates it."""
    return f"create it with `aioproducer topic create {quote(topic)}`"
