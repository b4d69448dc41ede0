"""A fake cluster and producers on it, for tests: on their own loop or in a thread, and the tasks behind a producer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer import Producer, ProducerOptions
from aioproducer.testing import FakeCluster
from tests.produced import values


@asynccontextmanager
async def producing(
    cluster: FakeCluster | None = None, **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    """Yield a cluster, by default of one broker with topic "orders" of one partition, and a started producer."""
    if cluster is None:
        cluster = FakeCluster(1, topics={"orders": 1})
    async with cluster, Producer(cluster.bootstrap_servers, **options) as producer:
        yield cluster, producer


class ClusterElsewhere:
    """A cluster on a loop and thread of its own; what tests do to it is done there."""

    def __init__(self, portal: BlockingPortal, cluster: FakeCluster) -> None:
        self._portal = portal
        self._cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers

    def do(self, act: Callable[[FakeCluster], object]) -> object:
        return self._portal.call(act, self._cluster)

    def values(self) -> list[bytes | None]:
        found = self.do(lambda cluster: values(cluster, "orders"))
        assert isinstance(found, list)
        return found


@contextmanager
def cluster_elsewhere() -> Iterator[ClusterElsewhere]:
    """Yield one broker, with topic "orders" of three partitions, for callers without an event loop."""
    cluster = FakeCluster(1, topics={"orders": 3}, auto_create_topics=False)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(cluster):
        yield ClusterElsewhere(portal, cluster)


def background_tasks() -> dict[str, asyncio.Task[object]]:
    """The tasks that the library runs behind a producer, by their names, which are part of what it promises."""
    named = {task.get_name(): task for task in asyncio.all_tasks()}
    return {
        name.removeprefix("aioproducer-").partition(" | ")[0]: task
        for name, task in named.items()
        if name.startswith("aioproducer-")
    }


async def left_behind(cluster: FakeCluster) -> tuple[int, dict[str, object]]:
    """Connections and tasks, once both had some turns."""
    for _ in range(20):
        if not cluster.connections and not background_tasks():
            break
        await asyncio.sleep(0.005)
    return cluster.connections, {**background_tasks()}
