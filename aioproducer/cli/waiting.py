"""Says what a command waits for, if that takes long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aioproducer.cli.process import tell

HINT_AFTER_S: Final = 2.0
LOOK_EVERY_S: Final = 0.05


@asynccontextmanager
async def explained_wait(what: str, at_most_s: float, reason: Callable[[], object]) -> AsyncIterator[None]:
    """Write one line to standard error after the first failed attempt in the block, or after two seconds.

    Args:
        reason: returns the error of the last failed attempt, or None.
    """
    hint = asyncio.create_task(_say(what, at_most_s, reason))
    try:
        yield
    finally:
        hint.cancel()


async def _say(what: str, at_most_s: float, reason: Callable[[], object]) -> None:
    clock = asyncio.get_running_loop().time
    until = clock() + HINT_AFTER_S
    while (found := reason()) is None and clock() < until:  # noqa: ASYNC110 - no event
        await asyncio.sleep(LOOK_EVERY_S)
    tell(f"aioproducer: waiting for {what}, {at_most_s:g} s at most{'' if found is None else f': {found}'}")
