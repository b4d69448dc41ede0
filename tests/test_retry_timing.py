"""Which failed tests may run a second time."""

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from tests.retry_timing import KEPT_AS, OutOfTime, pytest_collection_finish, pytest_runtest_makereport


class Cache(dict[str, list[str]]):
    """pytest's cache."""

    def set(self, key: str, value: list[str]) -> None:
        self[key] = value


def kept(error: BaseException | None) -> list[str]:
    """Return the tests that are kept where one ends with an error."""
    report = SimpleNamespace(nodeid="test_one", failed=error is not None, user_properties=[])
    call: Any = SimpleNamespace(excinfo=None if error is None else SimpleNamespace(value=error))
    hook = pytest_runtest_makereport(call)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)  # type: ignore[arg-type]
    cache = Cache()
    run: Any = OutOfTime(SimpleNamespace(cache=cache))  # type: ignore[arg-type]
    run.pytest_runtest_logreport(report)
    run.pytest_sessionfinish()
    return cache[KEPT_AS]


OF_SPARK = RuntimeError("terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST")


@pytest.mark.parametrize("error", [TimeoutError(), subprocess.TimeoutExpired("program", 1), OF_SPARK], ids=repr)
def test_deadline_that_ended_a_test_is_kept(error: Exception) -> None:
    assert kept(error) == ["test_one"]


@pytest.mark.parametrize("error", [AssertionError(), OSError(), None], ids=repr)
def test_other_ends_are_not_kept(error: Exception | None) -> None:
    assert kept(error) == []


def second_run(nodeid: str, *markers: str, out_of_time: list[str]) -> None:
    item = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name if name in markers else None)
    config = SimpleNamespace(cache=Cache({KEPT_AS: out_of_time}))
    pytest_collection_finish(SimpleNamespace(items=[item], config=config))  # type: ignore[arg-type]


def test_second_run_refuses_what_time_does_not_explain() -> None:
    with pytest.raises(pytest.exit.Exception, match="not for lack of time:\ntest_one"):
        second_run("test_one", "slow", out_of_time=["test_two"])


@pytest.mark.parametrize("marker", ["timing", "kafka"])
def test_second_run_repeats_what_is_marked(marker: str) -> None:
    second_run("test_one", marker, out_of_time=[])


def test_second_run_repeats_what_a_deadline_ended() -> None:
    second_run("test_one", out_of_time=["test_one"])
