"""A cluster for callers without an event loop: it runs on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from aioproducer.testing import FakeCluster
from tests.produced import values


class ClusterElsewhere:
    """One broker on a loop and thread of its own; what tests do to it is done there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster: FakeCluster) -> None:
        self._loop = loop
        self._cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers

    def do(self, act: Callable[[FakeCluster], object]) -> object:
        async def acts() -> object:
            return act(self._cluster)

        return asyncio.run_coroutine_threadsafe(acts(), self._loop).result(5)

    def values(self) -> list[bytes | None]:
        found = self.do(lambda cluster: values(cluster, "orders"))
        assert isinstance(found, list)
        return found


@contextmanager
def cluster_elsewhere() -> Iterator[ClusterElsewhere]:
    started: list[ClusterElsewhere] = []
    ready = threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        async with FakeCluster(1, topics={"orders": 3}, auto_create_topics=False) as cluster:
            started.append(ClusterElsewhere(asyncio.get_running_loop(), cluster))
            ready.set()
            await stop.wait()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, run())
        assert ready.wait(10)
        yield started[0]
        started[0].do(lambda _cluster: stop.set())
        running.result(5)
