"""Fixtures of the crash cases, and their table at the end of the run."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from tests.spark.crashes.case import MakeCase

collect_ignore_glob: list[str] = [] if find_spec("pyspark") else ["test_*.py"]

BROKERS = ("4.3.1", "3.9.1")
ROW = "row of the crash table"


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """One node, shared by all cases that let it live."""
    found: KafkaCluster = request.getfixturevalue(f"kafka_{request.param.replace('.', '')}")
    return found


@pytest.fixture
def make_case(tmp_path: Path, topic: str, record_property: Callable[[str, object], None]) -> "MakeCase":
    """Makes the case of this test on a cluster."""
    from tests.spark.crashes.case import Case  # noqa: PLC0415  # needs pyspark

    def make(kafka: KafkaCluster, **settings: object) -> Case:
        name = topic.replace("_", "-")
        return Case(kafka, tmp_path, name, lambda row: record_property(ROW, tuple(row)), **settings)  # type: ignore[arg-type]

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the crash table."""
    calls = [
        each for reports in terminalreporter.stats.values() for each in reports if getattr(each, "when", "") == "call"
    ]
    rows = [value for call in calls for name, value in call.user_properties if name == ROW]
    if not rows:
        return
    terminalreporter.section("crash table")
    terminalreporter.line("| case | broker | duplicates | missing | seconds to the next commit |")
    terminalreporter.line("| --- | --- | --- | --- | --- |")
    for case, broker, duplicates, missing, recovery_s in rows:
        terminalreporter.line(f"| {case} | {broker} | {duplicates} | {missing} | {recovery_s:.1f} |")
