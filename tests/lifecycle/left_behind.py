"""Counts of what a producer could leave behind, before and after many of them."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import NamedTuple

from tests.fakes.virtual_loop import virtual_loop

OURS = ("aioproducer", "tests.fakes.memory_transport")
THEIRS = "aioproducer.testing"  # the cluster keeps what it was sent


class Count(NamedTuple):
    tasks: int
    timers: int  # timers of the virtual loop that are set and not cancelled
    threads: int
    files: int  # descriptors, sockets among them
    objects: int  # objects that the collector knows, of classes of the producer and of its transports


def count() -> Count:
    gc.collect()
    return Count(
        tasks=len(asyncio.all_tasks()),
        timers=virtual_loop().timers,
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
        objects=sum(map(_is_ours, gc.get_objects())),
    )


def _is_ours(thing: object) -> bool:
    module = str(type(thing).__module__)
    return module.startswith(OURS) and not module.startswith(THEIRS)
