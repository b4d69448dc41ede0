"""Several refused options in one error, so that a file is not corrected one option per run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import ConfigurationError, ConfigurationTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def raise_any(problems: Sequence[ConfigurationError]) -> None:
    """Raise the problem, or all of them in one error; return if there is none."""
    if problems:
        raise together(problems) from None


def together(problems: Sequence[ConfigurationError]) -> ConfigurationError:
    """Return one error for all problems; a `ConfigurationTypeError` if each is one."""
    singles = [single.with_traceback(None) for problem in problems for single in problem.problems or (problem,)]
    if len(singles) == 1:
        return singles[0]
    rows = "".join(f"\n- {single}" for single in singles)
    kind = ConfigurationTypeError if all(isinstance(each, ConfigurationTypeError) for each in singles) else None
    error = (kind or ConfigurationError)(f"{len(singles)} options cannot be used:{rows}")
    error.problems = tuple(singles)
    return error


def placed(
    error: ConfigurationError, place: Callable[[ConfigurationError], str], *, source: str = ""
) -> ConfigurationError:
    """Return the error, each of its problems behind the place where the option was given.

    Args:
        place: returns the place of one problem, such as `line 3`, or an empty text.
        source: stands before all places, such as the name of a file.
    """
    if not error.problems:
        where = ", ".join(filter(None, (source, place(error))))
        return type(error)(f"{where}: {error}" if where else str(error), option=error.option)
    rows = [type(each)(f"{place(each)}: {each}".removeprefix(": "), option=each.option) for each in error.problems]
    found = together(rows)
    text = type(found)(f"{source}: {found}" if source else str(found))
    text.problems = found.problems
    return text
