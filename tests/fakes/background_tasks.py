"""The tasks that the library runs behind a producer, found by their names, which are part of what it promises."""

import asyncio

from aioproducer.testing import FakeCluster


def background_tasks() -> dict[str, asyncio.Task[object]]:
    named = {task.get_name(): task for task in asyncio.all_tasks()}
    return {
        name.removeprefix("aioproducer-").partition(" | ")[0]: task
        for name, task in named.items()
        if name.startswith("aioproducer-")
    }


async def left_behind(cluster: FakeCluster) -> tuple[int, dict[str, object]]:
    """Connections and tasks, once the sockets had their turn."""
    for _ in range(20):
        if not cluster.connections:
            break
        await asyncio.sleep(0.005)
    return cluster.connections, {**background_tasks()}
