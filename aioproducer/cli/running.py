"""How a command that lasts is run and ended: uvloop, Ctrl-C and its like, one line for what the user can mend."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

import anyio

from aioproducer.cli.exit_codes import EXIT_USAGE
from aioproducer.cli.standard_streams import tell


def run_until_signal(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` on uvloop until it ends, or until a signal cancels it (`ending_signals`).

    What it must undo it undoes `finally`.
    Clean-up that awaits needs `anyio.CancelScope(shield=True)` around it: the cancelled scope would end it as well.
    """
    with asyncio.Runner(loop_factory=_new_event_loop()) as runner:
        runner.run(_until_signal(main))


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C, SIGTERM, and SIGHUP, which comes when the terminal goes, unless `nohup` has it ignored."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def usage_error(lines: str | Iterable[str]) -> NoReturn:
    """Say on standard error, one line each, what the user can mend, and exit with 2."""
    for line in [lines] if isinstance(lines, str) else lines:
        tell(f"aioproducer: {line}")
    sys.exit(EXIT_USAGE)


async def _until_signal(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` in a scope that the first signal cancels; what it raises is raised as it is."""
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_signal, group.cancel_scope)
            await main()
            group.cancel_scope.cancel()
    except BaseExceptionGroup as raised:
        if len(raised.exceptions) == 1:
            raise raised.exceptions[0] from None
        raise


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    """Wait for the first signal."""
    with anyio.open_signal_receiver(*ending_signals()) as signals:
        async for _ in signals:
            scope.cancel()
            return


def _new_event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where it is installed (not on Windows), else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - absent on Windows
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
