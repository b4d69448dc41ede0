"""Measures what the free lists of `BufferPool` spare: lending kept chunks beside allocating each anew.

    python docs/measure_chunks.py

A round lends as many chunks as the buffer has room for, fills them, and gives them back: what a producer at its bound
does. Prints medians of nanoseconds of processor time a KiB and their ratio; the filling itself is part of both.
With MALLOC_MMAP_THRESHOLD_=131072 in the environment the C library maps every large block anew, as it does by itself
until it has seen the first one come back.
"""
# ruff: noqa: INP001, T201  # a script beside the pages that prints

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._native.memory import Chunk

BUFFER: Final = 32 * 1024 * 1024
SIZES: Final = (1024, 16 * 1024, 256 * 1024, 1024 * 1024)
ROUNDS: Final = 31

Round: TypeAlias = Callable[[BufferPool, int, bytes], None]


def lend(pool: BufferPool, size: int, data: bytes) -> None:
    """Take everything, write to it, give everything back."""
    lent = []
    while (chunk := pool.try_lend(size, None)) is not None:
        chunk.fill(data)
        lent.append(chunk)
    for chunk in lent:
        pool.give_back(chunk)


def allocate(pool: BufferPool, size: int, data: bytes) -> None:
    """Do the same bookkeeping, but let every chunk go back to the C library: as a pool without free lists would."""
    lent = []
    while (chunk := pool.try_lend(size, None)) is not None:
        fresh = Chunk(size)
        fresh.fill(data)
        lent.append((chunk, fresh))
    for chunk, _ in lent:
        pool.give_back(chunk)


def main() -> None:
    """Print the table."""
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {platform.libc_ver()}, {platform.machine()}"
    )
    print(f"{'chunk':>10} {'kept':>10} {'allocated':>10} {'ratio':>7}   (ns a KiB)")
    for size in SIZES:
        data = bytes(size)
        pools = {one_round: BufferPool(BUFFER, max(SIZES), on_return=_ignore) for one_round in (lend, allocate)}
        times: dict[Round, list[float]] = {one_round: [] for one_round in pools}
        for _ in range(ROUNDS):  # one after another, so that a disturbance hits both
            for one_round, pool in pools.items():
                began = time.process_time_ns()
                one_round(pool, size, data)
                times[one_round].append((time.process_time_ns() - began) / (BUFFER / 1024))
        kept, allocated = (statistics.median(times[one_round]) for one_round in (lend, allocate))
        print(f"{size // 1024:>6} KiB {kept:>10.1f} {allocated:>10.1f} {allocated / kept:>7.2f}")


def _ignore() -> None:
    """Stand for a sender that is told of memory."""


if __name__ == "__main__":
    main()
