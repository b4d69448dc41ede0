"""The page of threats names tests that exist, some for each threat."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "what_is_defended.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions}


def test_every_threat_has_a_row_with_its_tests() -> None:
    rows = re.findall(r"^\| (T\d+) \|.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| T\d+ \|", line)]

    assert rows == [f"T{number}" for number in range(1, 24)]
    assert [line[:6] for line in lines if not NAMED.search(line)] == []


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(PAGE.read_text("utf-8"))

    assert len(named) > 50
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(path)] == []
