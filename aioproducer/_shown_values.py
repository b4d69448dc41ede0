"""Values of the user's in error messages: never too long, and never the cause of an error of their own."""

from __future__ import annotations

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
