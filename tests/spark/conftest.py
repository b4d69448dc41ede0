"""Tests of the data source.

Those in the folders below start Spark, and need `nox -s spark`: the environment of the other tests has no pyspark, and
collects only the files here. Of these, the tests that need it say so by a mark `skipif`.
"""

from importlib.util import find_spec

import pytest

collect_ignore = [] if find_spec("pyspark") else ["functions", "crashes"]

ROW = "row of the crash table"
"""Name of the property of a test with such a row."""


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
