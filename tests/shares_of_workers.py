"""Decides which tests run in the same process where several share the suite: those of one real broker, or of one file.

A real broker of the whole run costs each process that uses it two seconds of CPU, and 3 % of a core until the end; with
nine such brokers and four processes that was a fifth of the run. The longest shares go first, so that all end together.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

_RELEASE = re.compile(r"[\[-](3\.9\.1|4\.3\.1-tv0|4\.3\.1)[\]-]")
_SECONDS = {"kafka": 2.5, "slow": 1.0}
"""A test's time, on average, by its marker; 0.02 without one. A marker may say it: `slow(seconds=60)`."""


def share_of(nodeid: str) -> str:
    """Return the name of a test's share: its file, or the real broker that it uses."""
    path, _, name = nodeid.partition("::")
    release = _RELEASE.search(name)
    if release is None or "fake" in name:
        return path
    return f"{'secured' if path.startswith('tests/secured/') else 'real'} {release[1]}"


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> LoadScopeScheduling | None:
    """Distribute by share with `--dist loadfile`."""
    if config.getoption("dist") != "loadfile":
        return None

    class ByShare(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    config.option.loadscopereorder = False  # by the number of tests, of which the longest shares have few
    return ByShare(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest shares first, in the processes of xdist."""
    if not hasattr(config, "workerinput"):
        return
    seconds: Counter[str] = Counter()
    for item in items:
        marks = [mark for name in _SECONDS if (mark := item.get_closest_marker(name)) is not None]
        seconds[share_of(item.nodeid)] += max(
            (mark.kwargs.get("seconds", _SECONDS[mark.name]) for mark in marks), default=0.02
        )
    items.sort(key=lambda item: (-seconds[share_of(item.nodeid)], share_of(item.nodeid)))
