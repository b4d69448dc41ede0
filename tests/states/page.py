"""The tables of the page about states, as data: what the tests hold the producer to."""

from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


WITH_AN_ID = "## With a transactional id"


def cells() -> dict[tuple[str, str], str]:
    """(where the producer is, call) -> "ok", "waits", or the name of an error."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[0])


def transactional_cells() -> dict[tuple[str, str], str]:
    """The same of a producer with a transactional id."""
    return _cells_in(PAGE.read_text("utf-8").partition(WITH_AN_ID)[2])


def _cells_in(text: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    places: list[str] = []
    lines = text.splitlines()
    for line, following in pairwise([*lines, ""]):
        if following.startswith("| ---"):
            places = _columns(line)[1:]
        elif line.startswith("| `"):
            call, *outcomes = _columns(line)
            found.update(zip(((place, call) for place in places), outcomes, strict=True))
    return found


def _columns(line: str) -> list[str]:
    return [column.strip().strip("`") for column in line.strip().strip("|").split("|")]
