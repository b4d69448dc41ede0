"""A TCP proxy in front of one broker that can act as a bad network.

    client -> Link (advertised port) -> broker (its second listener)

Each direction of each connection is a pump; what a pump does with the bytes it read is the business of the trouble
that is on (`Trouble`). All randomness comes from the link's own generator.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16
EDGE_BYTES = 24
"""Bytes at each end of a chunk that go one by one: frame heads and tails are there, the rest would cost too much."""

SLOW_CHUNK_BYTES = 4096
RESET_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 seconds: closing sends RST


@dataclass(slots=True)
class Pipe:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rng: random.Random
    is_answer: bool
    carried: int = 0  # bytes, under a trouble that counts them
    limit: int = 0
    is_dead: bool = False  # bytes were swallowed: what follows would be nonsense, so nothing follows any more


Trouble: TypeAlias = Callable[[bytes, Pipe], Awaitable[None]]


async def pass_on(data: bytes, pipe: Pipe) -> None:
    if pipe.is_dead:
        return
    pipe.writer.write(data)
    await pipe.writer.drain()


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


# Troubles: each carries one chunk of one direction, and raises `EOFError` to end the connection with a RST.


def resets_every(kibibytes: int) -> Trouble:
    """RST after about this many KiB in one direction: half to one and a half times, drawn for each connection."""

    async def carry(data: bytes, pipe: Pipe) -> None:
        if pipe.limit == 0:
            pipe.carried, pipe.limit = 0, pipe.rng.randrange(kibibytes * 512, kibibytes * 1536)
        room = pipe.limit - pipe.carried
        pipe.carried += len(data)
        await pass_on(data[:room], pipe)  # what is cut is in the middle of a frame
        if pipe.carried >= pipe.limit:
            raise EOFError

    return carry


def delays(mean_s: float, spread_s: float) -> Trouble:
    async def carry(data: bytes, pipe: Pipe) -> None:
        await asyncio.sleep(pipe.rng.uniform(mean_s - spread_s, mean_s + spread_s))
        await pass_on(data, pipe)

    return carry


def at_most(bytes_per_s: int) -> Trouble:
    """A thin line, for each direction of each connection."""

    async def carry(data: bytes, pipe: Pipe) -> None:
        for start in range(0, len(data), SLOW_CHUNK_BYTES):
            part = data[start : start + SLOW_CHUNK_BYTES]
            await asyncio.sleep(len(part) / bytes_per_s)
            await pass_on(part, pipe)

    return carry


async def half_open(_data: bytes, pipe: Pipe) -> None:
    """Take the bytes and lose them; both sides believe that the connection lives, also after this trouble."""
    pipe.is_dead = True


def loses_one_way(*, answers: bool) -> Trouble:
    """Lose one direction alone: responses, so that requests take effect unseen; or requests."""

    async def carry(data: bytes, pipe: Pipe) -> None:
        await (half_open(data, pipe) if pipe.is_answer == answers else pass_on(data, pipe))

    return carry


async def in_single_bytes(data: bytes, pipe: Pipe) -> None:
    """One write a byte at both ends of a chunk, and the middle cut once, anywhere."""
    middle = max(0, len(data) - 2 * EDGE_BYTES)
    cut = EDGE_BYTES + (pipe.rng.randrange(middle) if middle else 0)
    head, tail = data[:EDGE_BYTES], data[EDGE_BYTES + middle :]
    parts = [
        *(head[i : i + 1] for i in range(len(head))),
        data[EDGE_BYTES:cut],
        data[cut : EDGE_BYTES + middle],
        *(tail[i : i + 1] for i in range(len(tail))),
    ]
    for part in parts:
        if part:
            await pass_on(part, pipe)
            await asyncio.sleep(0)
