"""The worker seen from the demo: started, killed, started again."""

import asyncio
import tempfile
from typing import BinaryIO

from aioproducer.cli.demonstration.transfers import worker_program
from aioproducer.cli.python_child import python_command

EXIT_TIMEOUT_S = 3.0
SAID_BYTES = 2_000
"""The end of standard error that goes into an error."""


class WorkerEndedError(RuntimeError):
    """The worker ended by itself; with the end of what it wrote to standard error."""


class WorkerProcess:
    """One life of the worker.

    Args:
        bootstrap_servers: of the cluster.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._process: asyncio.subprocess.Process | None = None
        self._errors: BinaryIO | None = None

    async def start(self) -> None:
        """Begin; it connects by itself."""
        self._close_errors()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        self._process = await asyncio.create_subprocess_exec(
            *python_command(worker_program.__name__, self._bootstrap_servers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in the terminal reaches the demo alone
        )

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.returncode is None

    def check(self) -> None:
        """Return if the worker runs.

        Raises:
            WorkerEndedError: it does not.
        """
        if not self.is_alive:
            raise WorkerEndedError(f"the worker ended unexpectedly:\n{self._said()}")

    async def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._close_errors()

    async def stop(self) -> None:
        """Let it finish its batch; kill it if that takes long."""
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    def _said(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-SAID_BYTES:].strip()

    def _close_errors(self) -> None:
        if self._errors is not None:
            self._errors.close()
            self._errors = None
