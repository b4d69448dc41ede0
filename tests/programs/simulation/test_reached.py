"""What is printed of a measurement, and when it is enough."""

from typing import Any

import pytest

from tests.programs.simulation.reached import AREAS, print_reached


def _file(lines: int, branches: int, missing: tuple[int, ...] = ()) -> dict[str, Any]:
    summary = {"covered_lines": lines, "num_statements": 100, "covered_branches": branches, "num_branches": 10}
    return {"summary": summary, "missing_lines": list(missing)}


def test_what_was_not_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With its file, under the area that the file belongs to; files of no area do not count."""
    files = {
        "_sender/sender.py": _file(96, 9, (7, 8)),
        "_accumulator/buffer_pool.py": _file(100, 10),
        "cli/main.py": _file(0, 0, (1,)),
    }

    is_enough = print_reached(files)

    said = capsys.readouterr().out
    assert is_enough
    assert "_sender/sender.py: not 7, 8" in said
    assert "accumulator: 100.0% of the lines, 100.0% of the branches" in said
    assert "altogether: 98.0% of the lines, 95.0% of the branches" in said
    assert "cli" not in said


@pytest.mark.parametrize("lines, branches", [(94, 10), (100, 8)])
def test_too_few_lines_or_branches_are_not_enough(lines: int, branches: int) -> None:
    assert not print_reached({"_sender/compressor.py": _file(lines, branches)})


def test_every_area_is_there() -> None:
    assert {"sender", "accumulator", "connection"} <= AREAS.keys()
