"""Python programs that run beside a cell and die with it."""

import asyncio
import signal
import sys
from pathlib import Path

from aioproducer.testing.kafka.java_process import JavaProcess


class ProgramFailedError(Exception):
    """A program that had to succeed did not."""


class TiedProcess(JavaProcess):
    """`python -m MODULE ARGUMENTS`, tied to us as brokers are; what it prints goes to a file."""

    def __init__(self, module: str, *arguments: str, log_file: Path) -> None:
        super().__init__([sys.executable, "-m", module, *arguments], log_file)

    def pause(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    async def end(self, timeout_s: float) -> bool:
        self.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_for_exit()
        except TimeoutError:
            self.kill_now()
            return False
        return True


async def run_to_end(module: str, *arguments: str, out: Path, log_file: Path) -> None:
    process = TiedProcess(module, *arguments, log_file=log_file)
    try:
        await process.wait_for_exit()
    finally:
        process.kill_now()
    if not out.exists():
        raise ProgramFailedError(f"{module} {' '.join(arguments)}:\n{process.log_tail(40)}")
