"""A pytest plugin for a second run with `--last-failed`: refuses to repeat tests that do not depend on time.

`pytest -p tests.retry_timing --last-failed --last-failed-no-failures none`. Two busy cores may delay a process or a
real broker; such tests are marked `timing` or `kafka`. A failure of any other test is a defect, however rare it is.
"""

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run if a failed test has neither marker."""
    failed = [
        item.nodeid
        for item in session.items
        if item.get_closest_marker("timing") is None and item.get_closest_marker("kafka") is None
    ]
    if failed:
        pytest.exit("\n".join(["failed, and not marked as sensitive to time:", *failed]), returncode=1)
