"""A second run of tests whose failure two busy cores can explain, and of no other.

`pytest -p tests.retry_timing --last-failed --last-failed-no-failures none` repeats tests marked `timing` or `kafka`, as
the machine may delay a process or a real broker, and tests that a deadline of their own, or of Spark's, ended in the
first run. A failure of any other test is a defect, however rare it is.
"""

import subprocess
from collections.abc import Generator

import pytest

OUT_OF_TIME = "out of time"
"""Property of a report whose test a deadline ended."""

SPARK_DID_NOT_WAIT = "Python worker failed to connect back"
"""Spark gives a Python worker ten seconds to start, and that is no option of its own."""

KEPT_AS = "aioproducer/out_of_time"
"""Key of pytest's cache: the tests of the last run that a deadline ended."""


class OutOfTime:
    """Keeps which tests of the first run a deadline ended, in the process that writes pytest's cache."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and (OUT_OF_TIME, True) in report.user_properties:
            self._tests.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        assert self._config.cache is not None  # it is made only where there is one
        self._config.cache.set(KEPT_AS, self._tests)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in a test's report that a deadline ended it."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, (TimeoutError, subprocess.TimeoutExpired)) or SPARK_DID_NOT_WAIT in str(error):
        report.user_properties.append((OUT_OF_TIME, True))
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the second run if a failed test is none of these."""
    cache = session.config.cache
    out_of_time = set() if cache is None else set(cache.get(KEPT_AS, []))
    failed = [
        item.nodeid
        for item in session.items
        if item.get_closest_marker("timing") is None
        and item.get_closest_marker("kafka") is None
        and item.nodeid not in out_of_time
    ]
    if failed:
        pytest.exit("\n".join(["failed, and not for lack of time:", *failed]), returncode=1)
