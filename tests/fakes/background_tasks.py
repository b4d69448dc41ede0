"""The tasks that the library runs behind a producer, found by their names, which are part of what it promises."""

import asyncio


def background_tasks() -> dict[str, asyncio.Task[object]]:
    """Tasks by kind ("sender", "metadata", "supervisor", ...), of whichever producer runs."""
    named = {task.get_name(): task for task in asyncio.all_tasks()}
    return {
        name.removeprefix("aioproducer-").partition(" | ")[0]: task
        for name, task in named.items()
        if name.startswith("aioproducer-")
    }
