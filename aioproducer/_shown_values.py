"""Values of the user's in error messages: never too long, and never the cause of an error of their own; and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import islice
from shlex import quote
from typing import Final, TypeVar

SelfT = TypeVar("SelfT")

MOST_PLACES: Final = 5
"""The most places in a value that a message names."""

_MOST_CHARACTERS: Final = 100
_MOST_CHARACTERS_OF_A_PLACE: Final = 300


def shown(value: object) -> str:
    """Return a value's repr for a message, cut to 100 characters; of a large one, no more than those is made."""
    try:
        text = _begin(value)
    except Exception:  # noqa: BLE001  # a repr of the user's, or an int of more digits than Python converts
        if isinstance(value, int):
            return f"a number of {value.bit_length()} bits"
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def shortened(text: str, most: int = _MOST_CHARACTERS_OF_A_PLACE) -> str:
    """Return a text, without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-(most // 2) :]}"


def first_places(places: Iterable[str]) -> str:
    """Return the first places in a value that are wrong, and whether there are more; takes only one more."""
    first = [shortened(place) for place in islice(places, MOST_PLACES + 1)]
    return "; ".join(first if len(first) <= MOST_PLACES else [*first[:MOST_PLACES], "and more"])


def _begin(value: object) -> str:
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _MOST_CHARACTERS:
            break
    return text


def _pieces(value: object) -> Iterator[str]:
    """Yield the pieces of a repr, so that a list of a million items need not be shown to its end."""
    kind = type(value)
    if isinstance(value, dict) and kind is dict and value:
        for index, (key, item) in enumerate(value.items()):
            yield ", " if index else "{"
            yield from _pieces(key)
            yield ": "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list | tuple) and kind in {list, tuple} and value:
        begin, end = "[]" if kind is list else "()"
        for index, item in enumerate(value):
            yield ", " if index else begin
            yield from _pieces(item)
        yield f",{end}" if kind is tuple and len(value) == 1 else end
    elif isinstance(value, str | bytes | bytearray) and kind in {str, bytes, bytearray}:
        yield repr(value[: _MOST_CHARACTERS + 1])
    else:
        yield repr(value)


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
