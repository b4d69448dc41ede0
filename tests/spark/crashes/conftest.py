"""Fixtures of the crash cases, and their table at the end of the run."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.table import TABLE

if TYPE_CHECKING:
    from tests.spark.crashes.case import MakeCase

collect_ignore_glob: list[str] = [] if find_spec("pyspark") else ["test_*.py"]

BROKERS = ("4.3.1", "3.9.1")


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """One node, shared by all cases that let it live."""
    found: KafkaCluster = request.getfixturevalue(f"kafka_{request.param.replace('.', '')}")
    return found


@pytest.fixture
def make_case(tmp_path: Path, topic: str) -> "MakeCase":
    """Makes the case of this test on a cluster."""
    from tests.spark.crashes.case import Case  # noqa: PLC0415  # needs pyspark

    def make(kafka: KafkaCluster, **settings: object) -> Case:
        return Case(kafka, tmp_path, topic.replace("_", "-"), **settings)  # type: ignore[arg-type]

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the crash table."""
    if not TABLE:
        return
    terminalreporter.section("crash table")
    terminalreporter.line("| case | broker | duplicates | missing | seconds to the next commit |")
    terminalreporter.line("| --- | --- | --- | --- | --- |")
    for row in TABLE:
        terminalreporter.line(
            f"| {row.case} | {row.broker} | {row.duplicates} | {row.missing} | {row.recovery_s:.1f} |"
        )
