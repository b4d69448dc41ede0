"""The clusters the demo can play on: embedded brokers in another process, or real Apache Kafka.

A process of its own makes the death of a broker as sudden for the producer as it is in life, and keeps the brokers'
work off the event loop that sends and draws. Measured on two cores, 100,000 records: at 13,000 records/s the lag of
that loop is the same as with the brokers on it (p99 1.6 and 5.9 ms against 1.8 and 11 ms, two rounds each, which is
noise); as fast as it goes, sending takes 0.62 and 0.69 s against 0.70 and 0.83 s.
"""

import asyncio
import tempfile
from typing import BinaryIO, Protocol

from aioproducer.cli.demonstration import embedded_program
from aioproducer.cli.python_child import python_command

START_TIMEOUT_S = 60.0
"""How long the embedded brokers' process may take; two seconds are usual, many on a busy machine with a cold disk."""

EXIT_TIMEOUT_S = 2.0
"""How long that process may take to end by itself."""


class ShowCluster(Protocol):
    """What the demo needs of a cluster."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every node, also of dead ones."""

    async def start(self) -> None:
        """Start three brokers."""

    async def stop(self) -> None:
        """End them all and leave nothing."""

    async def kill(self, node_id: int) -> None:
        """End one at once, as a power cut does."""


class EmbeddedClusterError(RuntimeError):
    """The process of the embedded brokers did not start, or ended before it should."""


class EmbeddedClusterProcess:
    """The embedded brokers, run by `embedded_program` in a child process."""

    def __init__(self) -> None:
        self.bootstrap_servers = ""
        self._process: asyncio.subprocess.Process | None = None
        self._errors: BinaryIO | None = None

    async def start(self) -> None:
        """Start the process and wait until its brokers listen.

        Raises:
            EmbeddedClusterError: it ended or did not get ready in time; with what it said.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._process = await asyncio.create_subprocess_exec(
            *python_command(embedded_program.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in the terminal reaches the demo alone, which then ends this in order
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.bootstrap_servers = await self._answer("ready")
        except TimeoutError:
            raise EmbeddedClusterError(f"the embedded brokers were not ready in {START_TIMEOUT_S:.0f} s") from None

    async def kill(self, node_id: int) -> None:
        """Let a broker die; returns when its port is closed.

        Raises:
            EmbeddedClusterError: the process is gone.
        """
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(b"kill %d\n" % node_id)
        await self._answer("killed")

    async def stop(self) -> None:
        """End the process; doing so again does nothing."""
        if self._process is not None and self._process.returncode is None:
            await self._end(self._process)
        self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    @staticmethod
    async def _end(process: asyncio.subprocess.Process) -> None:
        """Close its standard input, which ends it, or kill it."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _answer(self, word: str) -> str:
        """Return what follows `word` on the next line of the process.

        Raises:
            EmbeddedClusterError: it ended or said something else; with what it said.
        """
        stdout = self._running().stdout
        assert stdout is not None
        said, _, rest = (await stdout.readline()).decode().strip().partition(" ")
        if said != word:
            raise EmbeddedClusterError(f"the embedded brokers ended unexpectedly:\n{self._said()}")
        return rest

    def _running(self) -> asyncio.subprocess.Process:
        """The process.

        Raises:
            EmbeddedClusterError: there is none.
        """
        if self._process is None:
            raise EmbeddedClusterError("the embedded brokers are not started")
        return self._process

    def _said(self) -> str:
        """The end of what the process wrote to standard error."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2_000:].strip()
