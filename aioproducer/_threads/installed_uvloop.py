"""uvloop, where it is installed and can be used."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from aioproducer._threads.calls import LONGEST_SLEEP_S
from aioproducer._threads.real_threads import allocate_lock, start_thread, wait_for_lock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

STANDARD_STREAMS: Final = (0, 1, 2)  # file descriptors of standard input, output and error


def installed_uvloop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop of uvloop; None for asyncio's own."""
    if not all(map(_is_open, STANDARD_STREAMS)):
        return None  # its sockets would get these numbers, and libuv ends the process when it closes one of them
    load_uvloop()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = getattr(sys.modules.get("uvloop"), "new_event_loop", None)
    return factory


def load_uvloop() -> None:
    """Import uvloop if installed, on another thread: Ctrl-C can leave the interpreter's import lock locked."""
    if "uvloop" in sys.modules:
        return
    gate = allocate_lock()
    gate.acquire()

    def import_it() -> None:
        try:
            with contextlib.suppress(Exception):  # not installed, or the system allows no more open files
                import_module("uvloop")
        finally:
            gate.release()

    try:
        start_thread(import_it, "aioproducer-import")
    except RuntimeError:  # no more threads are allowed now
        return
    while not wait_for_lock(gate, LONGEST_SLEEP_S):
        pass


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
