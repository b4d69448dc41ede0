"""asyncio's own loop, uvloop, and eager tasks where Python has them."""

import asyncio
import sys
from collections.abc import Callable

import uvloop


def eager_loop() -> asyncio.AbstractEventLoop:
    """A loop whose tasks begin in the call that makes them."""
    loop = asyncio.SelectorEventLoop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]  # 3.12 on
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
if sys.version_info >= (3, 12):
    LOOPS["eager"] = eager_loop
