"""Brings the records into memory before the show, so that what is measured is the producer and not a CSV reader."""

import asyncio
import gc
from collections.abc import Callable, Iterator

from aioproducer.cli.demonstration.records import SentRecord

RECORDS_A_TURN = 2_000
"""After so many the event loop gets its turn: the screen moves and Ctrl-C works."""


async def load_records(records: Iterator[SentRecord], loaded: Callable[[int], None]) -> list[SentRecord]:
    """Take all records, telling `loaded` from time to time how many there are.

    The cycle collector walks everything that lives again and again while a million small objects are made, which
    more than doubles the time; and later its walks would show in the latencies as if the producer were slow. None
    of these objects is part of a cycle, so it is told to leave them alone for good.
    """
    kept: list[SentRecord] = []
    gc.disable()
    try:
        for record in records:
            kept.append(record)
            if len(kept) % RECORDS_A_TURN == 0:
                loaded(len(kept))
                await asyncio.sleep(0)
    finally:
        gc.enable()
    gc.freeze()
    loaded(len(kept))
    return kept
