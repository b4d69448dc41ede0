"""The page of log events names each event that the package logs, at its level and with its values; and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "log_events.md"
LEVELS = {"Errors": {"error"}, "Warnings": {"warning"}, "Info": {"info"}, "Debug": {"debug"}}
ROW = re.compile(r"^\| `(?P<event>\w+)` \| (?P<values>[^|]*) \|", re.MULTILINE)
SEVERAL_LEVELS = {"write": {"warning"}}
"""A variable that holds a method of the log, and the highest level that it may be of."""


def calls_of_the_log() -> Iterator[tuple[str, set[str], set[str]]]:
    for path in (ROOT / "aioproducer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            event, function = node.args[0].value, node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            levels = SEVERAL_LEVELS.get(called, {called})
            is_event = isinstance(event, str) and event.isidentifier() and all(each.arg for each in node.keywords)
            if is_event and levels <= {"debug", "info", "warning", "error"}:
                yield event, levels, {str(each.arg) for each in node.keywords}


def events_of_the_page() -> dict[str, tuple[set[str], set[str]]]:
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        levels = LEVELS[section.split(":")[0]]
        for row in ROW.finditer(section):
            found[row["event"]] = levels, set(re.findall(r"`(\w+)`", row["values"]))
    return found


def test_page_names_each_event_with_its_level_and_values() -> None:
    """Whoever is called at night looks here."""
    logged = {event: (levels, values) for event, levels, values in calls_of_the_log()}

    assert len(logged) > 20
    assert events_of_the_page() == logged


def test_an_event_has_the_same_values_wherever_it_is_logged() -> None:
    shapes: dict[str, set[frozenset[str]]] = {}
    for event, _, values in calls_of_the_log():
        shapes.setdefault(event, set()).add(frozenset(values))

    assert {event for event, each in shapes.items() if len(each) > 1} == set()
