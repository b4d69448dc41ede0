"""The tables of the page about states, as data: what the tests hold the producer to."""

from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


def cells() -> dict[tuple[str, str], str]:
    """(where the producer is, call) -> "ok", "waits", or the name of an error."""
    found: dict[tuple[str, str], str] = {}
    places: list[str] = []
    lines = PAGE.read_text("utf-8").splitlines()
    for line, following in pairwise([*lines, ""]):
        if following.startswith("| ---"):
            places = _columns(line)[1:]
        elif line.startswith("| `"):
            call, *outcomes = _columns(line)
            found.update(zip(((place, call) for place in places), outcomes, strict=True))
    return found


def _columns(line: str) -> list[str]:
    return [column.strip().strip("`") for column in line.strip().strip("|").split("|")]
