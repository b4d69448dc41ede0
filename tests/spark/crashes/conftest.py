"""Fixtures of the crash cases, and their table at the end of the run."""

from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster

pytest.importorskip("pyspark", reason="the crash cases need pyspark: nox -s spark")

from tests.spark.crashes.case import TABLE, Case, MakeCase

BROKERS = ("4.3.1", "3.9.1")


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """One node, shared by all cases that let it live."""
    found: KafkaCluster = request.getfixturevalue(f"kafka_{request.param.replace('.', '')}")
    return found


@pytest.fixture
def make_case(tmp_path: Path, topic: str) -> MakeCase:
    """Makes the case of this test on a cluster."""

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
