"""A TCP proxy in front of one broker that can act as a bad network.

    client -> Link (advertised port) -> broker (its second listener)

Each direction of each connection is a pump; what a pump does with the bytes it read is the business of the trouble
that is on (`tests/programs/chaos/troubles.py`). All randomness comes from the link's own generator.
"""

import asyncio
import contextlib
import random
import socket
import struct

from tests.programs.chaos.troubles import Pipe, Trouble, pass_on

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16
RESET_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds: closing sends RST


class Link:
    """The proxy of one broker: listens from `open` to `close`."""

    def __init__(self, port: int, target_port: int, seed: str) -> None:
        self.port = port
        self.rng = random.Random(seed)
        self.trouble: Trouble = pass_on
        self.connections = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Link {self.port} -> {self._target_port} {len(self._tasks)} open>"

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, LOOPBACK, self.port)

    async def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        await self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until one side ends."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:  # made by the link itself
            return
        except OSError:
            return
        finally:
            self._tasks.discard(task)
            reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to the broker and pump both ways; the end of one direction ends the other."""
        to_broker_reader, to_broker_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
        no_delay(writer)
        no_delay(to_broker_writer)
        pipes = [
            Pipe(reader, to_broker_writer, self.rng, is_answer=False),
            Pipe(to_broker_reader, writer, self.rng, is_answer=True),
        ]
        pumps = [asyncio.create_task(self._pump(pipe)) for pipe in pipes]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            reset(to_broker_writer)

    async def _pump(self, pipe: Pipe) -> None:
        """Carry what comes, the way of the trouble that is on; return at the end of either side."""
        with contextlib.suppress(OSError, EOFError):
            while data := await pipe.reader.read(CHUNK_BYTES):
                await self.trouble(data, pipe)
        if pipe.is_dead and pipe.is_answer:  # a client behind a dead line does not hear that the broker hung up
            await asyncio.Event().wait()


def no_delay(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
    writer.transport.abort()
