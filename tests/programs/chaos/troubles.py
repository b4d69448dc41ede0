"""Troubles of a bad network: each carries one chunk of one direction of one connection.

A trouble is a function of a chunk and its pipe. It raises `EOFError` to end the connection with a RST.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

EDGE_BYTES = 24
"""Bytes at each end of a chunk that go one by one: frame heads and tails are there, the rest would cost too much."""

SLOW_CHUNK_BYTES = 4096


@dataclass(slots=True)
class Pipe:
    """One direction of one connection."""

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
