"""Checks of numbers that tests give: a wrong one is refused on the test's own line."""

import math


def check_whole_number(name: str, given: object, *, least: int, most: int | None = None, kind: str = "an int") -> None:
    """Refuse what is not a whole number between the two.

    Raises:
        TypeError: of another type, a bool too; names the argument and what is allowed.
        ValueError: too small or too large.
    """
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{name} must be {kind}, not {type(given).__name__}")
    if most is None and given < least:
        raise ValueError(f"{name} must be at least {least}, not {given}")
    if most is not None and not least <= given <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {given}")


def check_seconds(name: str, given: object) -> None:
    """Refuse what is not a time.

    Raises:
        TypeError: not a number.
        ValueError: negative, infinite, or no number.
    """
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(given).__name__}")
    if not 0 <= given < math.inf:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, not {given}")
