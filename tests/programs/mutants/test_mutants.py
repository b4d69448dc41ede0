"""Every mutant still fits the code."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.mutants.mutant import Change, Mutant, StaleMutantError
from tests.programs.mutants.session import MUTANTS, PACKAGE, ROOT, SIX, WITHOUT_BROKERS, chosen_by


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_fits_the_code(mutant: Mutant, tmp_path: Path) -> None:
    for file in {change.file for change in mutant.changes}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / file, tmp_path / file)

    mutant.apply(tmp_path)

    for path in tmp_path.rglob("*.py"):
        ast.parse(path.read_text("utf-8"))


@pytest.mark.slow
def test_every_named_test_runs() -> None:
    """A missing file, or a deselected test, would end the session instead of killing its mutant."""
    named = sorted({test for mutant in MUTANTS for test in mutant.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", WITHOUT_BROKERS, *named]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    assert [test for test in named if not any(line.startswith(test) and "::" in line for line in collected)] == []


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(names) == len(set(names))


def test_page_counts_the_few_mutants() -> None:
    """Each is a tax on renames: a new one replaces another, unless nothing else guards what it breaks."""
    page = (ROOT / "docs/explanation/mutants.md").read_text("utf-8")

    assert f"The {len(MUTANTS)} mutants stand" in page
    assert len(MUTANTS) <= 60


@pytest.mark.parametrize("body", ["pass", "old(); old()", "if old():\n        old()"])
def test_mutant_that_does_not_fit_is_an_error(body: str) -> None:
    """A mutant that changes nothing, or more than it says, must not count as killed."""
    with pytest.raises(StaleMutantError):
        Change("_sender/sender.py", "send", "old()", "new()").replaced(f"def send():\n    {body}\n")


def test_function_that_is_gone_is_an_error() -> None:
    with pytest.raises(StaleMutantError, match=r"Sender\.run"):
        Change("_sender/sender.py", "Sender.run", "old()", "new()").replaced("class Sender:\n    pass\n")


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("a + b", "a - b", "def send():\n    return (a - b)  # why\n"),
        ("return a + b", "log()\nreturn 0", "def send():\n    log()\n    return 0  # why\n"),
    ],
)
def test_change_is_found_by_what_it_means(old: str, new: str, expected: str) -> None:
    """White space, parentheses and comments do not count."""
    text = "def send():\n    return (a  +  b)  # why\n"

    assert Change("_sender/sender.py", "send", old, new).replaced(text) == expected


def test_six_are_chosen_by_the_commit() -> None:
    first, again, other = (chosen_by(commit, MUTANTS) for commit in ("a1", "a1", "b2"))

    assert (len(set(map(id, first))), first == again, first == other) == (SIX, True, False)
