"""Functions whose result is to be awaited, though they are no `async def`."""

from __future__ import annotations

import asyncio
import inspect


def mark_as_coroutine_functions(*verbs: object) -> None:
    """Let frameworks that ask see that what these functions return is to be awaited."""
    for verb in verbs:
        if hasattr(inspect, "markcoroutinefunction"):
            inspect.markcoroutinefunction(verb)
        else:
            verb.__dict__["_is_coroutine"] = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
