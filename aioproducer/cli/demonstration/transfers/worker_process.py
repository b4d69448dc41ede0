"""The worker seen from the demo: started, killed, started again."""

import asyncio
import sys

from aioproducer.cli.demonstration.transfers import worker_program

EXIT_TIMEOUT_S = 3.0


class WorkerProcess:
    """One life of the worker.

    Args:
        bootstrap_servers: of the cluster.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Begin; it connects by itself."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", worker_program.__name__, self._bootstrap_servers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal reaches the demo alone
        )

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

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
