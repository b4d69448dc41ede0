"""Runs the background tasks of a producer: when one of them dies, all end.

One supervisor task holds an `asyncio.TaskGroup` with them. It is not entered in `__aenter__`: a dying background
task would then cancel the body of the user's own `async with`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from aioproducer.errors import BackgroundTaskDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping


class Supervisor:
    """Runs coroutines that must not end.

    Args:
        on_death: called once with the cause, when a coroutine ends that was not stopped.
    """

    def __init__(self, name: str, on_death: Callable[[BaseException], None]) -> None:
        self._name = name
        self._on_death = on_death
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self, jobs: Mapping[str, Callable[[], Coroutine[object, object, None]]]) -> None:
        """Start the tasks; the keys become parts of their names."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(jobs), name=f"aioproducer-supervisor | {self._name}"
        )

    async def stop(self) -> None:
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        """End all tasks without waiting: the producer was dropped unclosed."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, jobs: Mapping[str, Callable[[], Coroutine[object, object, None]]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for name, job in jobs.items():
                    group.create_task(self._guard(name, job), name=f"aioproducer-{name} | {self._name}")
        except BaseExceptionGroup as deaths:
            self._on_death(_first(deaths))
        except asyncio.CancelledError as cancelled:
            if not self._is_stopping:
                self._on_death(_died("supervisor", cancelled))
            raise

    async def _guard(self, name: str, job: Callable[[], Coroutine[object, object, None]]) -> NoReturn:
        try:
            await job()
        except asyncio.CancelledError as cancelled:
            # A TaskGroup ignores a child that was cancelled from outside.
            if self._is_stopping or self._task is None or self._task.cancelling():
                raise
            raise _died(name, cancelled) from cancelled
        raise _died(name, None)


def _died(name: str, cause: BaseException | None) -> BackgroundTaskDiedError:
    how = "ended"
    if isinstance(cause, asyncio.CancelledError):
        how = "was cancelled from outside, as asyncio.run does at its end with what was not closed"
    return BackgroundTaskDiedError(f"the producer's {name} task {how}; the producer cannot continue: make a new one")


def _first(deaths: BaseExceptionGroup[BaseException]) -> BaseException:
    first = deaths.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
