"""Decides which tests run in the same process where several share the suite: those of one real broker, or of one file.

A real broker costs each process that uses it three seconds of CPU, and 3 % of a core for as long as it runs. So tests
of the same broker are one share, and its brokers end with it. The longest shares go first, so that all end together.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.kafka_releases import RELEASES

if TYPE_CHECKING:
    from xdist.remote import Producer

_RELEASE = re.compile(rf"[\[-]({'|'.join(map(re.escape, sorted(RELEASES, reverse=True)))})[\]-]")
_UNNAMED = {
    "tests/real_broker/test_log_files.py": "real 4.4.0",
    "tests/testing/kafka/test_cache.py": "real 4.4.0",
    "tests/real_broker/test_leader_dies.py": "three nodes",
    "tests/testing/kafka/test_real_kafka.py": "three nodes",
}
"""Shares of tests whose names do not say which brokers they use, by file."""
_WHOLE = {"tests/secured/test_kerberos.py"}
"""Files with brokers of their own, whose tests stay together."""
_SECONDS = {"kafka": 2.5, "slow": 1.0}
"""A test's time, on average, by its marker; 0.02 without one. A marker may say it: `slow(seconds=60)`."""
_BROKER = re.compile(r"(kafka|secured|sessions|kerberos)_\d|three_kafka_nodes|proxied_kafka")
"""Fixtures that are a running broker of the whole session."""


def share_of(nodeid: str) -> str:
    """Return the name of a test's share: its file, or the real brokers that it uses."""
    path, _, name = nodeid.partition("::")
    release = None if path in _WHOLE or "fake" in name else _RELEASE.search(name)
    if release is not None:
        return f"{'secured' if path.startswith('tests/secured/') else 'real'} {release[1]}"
    return _UNNAMED.get(path, path)


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


def longest_first(items: list[pytest.Item]) -> None:
    """Put the longest shares first."""
    seconds: Counter[str] = Counter()
    for item in items:
        marks = [mark for name in _SECONDS if (mark := item.get_closest_marker(name)) is not None]
        seconds[share_of(item.nodeid)] += max(
            (mark.kwargs.get("seconds", _SECONDS[mark.name]) for mark in marks), default=0.02
        )
    items.sort(key=lambda item: (-seconds[share_of(item.nodeid)], share_of(item.nodeid)))


class BrokersOfShares:
    """A plugin that ends the brokers of a share behind its last test, for the processes of xdist.

    Registered, not in conftest.py: pytest does not call the hooks of a folder for a fixture of the whole session.
    """

    def __init__(self) -> None:
        """No broker runs yet."""
        self._running: list[tuple[pytest.FixtureDef[object], pytest.FixtureRequest]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
        if fixturedef.scope == "session" and _BROKER.match(fixturedef.argname):
            self._running.append((fixturedef, request))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[object]:
        result = yield
        if nextitem is not None and share_of(nextitem.nodeid) != share_of(item.nodeid):
            while self._running:
                fixture, request = self._running.pop()
                fixture.finish(request)  # type: ignore[arg-type]  # of the type that the hook was called with
        return result
