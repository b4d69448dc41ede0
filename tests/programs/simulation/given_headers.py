"""Headers of records: none, one or several, short and long, with and without a value."""

from typing import Final

from tests.programs.simulation.history import Story

_NAMES: Final = ("trace", "", "\u00e9t\u00e9", "n" * 63, "n" * 64)
"""Among them those whose lengths are the last of one byte, and the first of two."""

_LONGEST: Final = 300


def headers_for(story: Story) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record, which its number decides."""
    number = story.record.number
    return tuple(
        (_NAMES[(number + each) % len(_NAMES)], None if (number + each) % 7 == 0 else _value(number, each))
        for each in range(number % 4)
    )


def _value(number: int, each: int) -> bytes:
    return b"%d.%d" % (number, each) * (number * 13 % _LONGEST // 8)
