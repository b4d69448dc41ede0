"""Runs commands until they end or a signal comes, and reports usage errors."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

import anyio

from aioproducer._threads.installed_uvloop import installed_uvloop
from aioproducer.cli.process import EXIT_SIGNAL, EXIT_USAGE, tell


def run_until_signal(main: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Run `main` until it ends, or until a signal cancels it (`ending_signals`); return the signal that did.

    Clean-up in `main` that awaits needs `anyio.CancelScope(shield=True)` around it.
    """
    with asyncio.Runner(loop_factory=installed_uvloop()) as runner:
        return runner.run(_until_signal(main))


def run_to_end(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` as `run_until_signal`; after a signal, exit with its code."""
    number = run_until_signal(main)
    if number is not None:
        sys.exit(EXIT_SIGNAL + number)


def ending_signals() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM, and SIGHUP unless `nohup` ignores it."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def usage_error(lines: str | Iterable[str]) -> NoReturn:
    """Write usage errors to standard error, one line each, and exit with 2."""
    for line in [lines] if isinstance(lines, str) else lines:
        tell(f"aioproducer: {line}")
    sys.exit(EXIT_USAGE)


async def _until_signal(main: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Run `main` in a scope that the first signal cancels; its exception is raised without a group."""
    came: list[signal.Signals] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_signal, group.cancel_scope, came)
            await main()
            group.cancel_scope.cancel()
            return None
    except BaseExceptionGroup as raised:
        if len(raised.exceptions) == 1:
            raise raised.exceptions[0] from None
        raise
    return came[0]


async def _cancel_on_signal(scope: anyio.CancelScope, came: list[signal.Signals]) -> None:
    with anyio.open_signal_receiver(*ending_signals()) as signals:
        async for number in signals:
            came.append(number)
            scope.cancel()
            return
