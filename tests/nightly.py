"""What the nightly workflow has on top, with `pytest --nightly`: tests marked `nightly`, and more rounds of others.

A test marked `nightly` repeats, on another release, mechanism or database, or over a longer time, what a test of every
run shows.
"""

import pytest


class _Chosen:
    is_nightly = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run tests marked `nightly`, and all rounds of others")


def choose(config: pytest.Config) -> None:
    """Take over the option, before test files are imported."""
    _Chosen.is_nightly = bool(config.getoption("--nightly"))


def rounds(usual: int, *, nightly: int) -> int:
    """How often a test repeats what it does: few times in each run, and more often at night."""
    return nightly if _Chosen.is_nightly else usual


def leave_out_nightly(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is marked `nightly`, unless it was asked for."""
    if _Chosen.is_nightly:
        return
    later = [item for item in items if item.get_closest_marker("nightly") is not None]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
