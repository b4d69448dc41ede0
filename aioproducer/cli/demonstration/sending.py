"""Gives the records to the producer: paced for an audience, or as fast as it takes them."""

import asyncio
from collections.abc import Callable, Sequence

from aioproducer import Producer, RecordMetadata, UndeliveredError
from aioproducer.cli.demonstration.records import SentRecord

TURN_S = 0.01
"""A paced sender gives the records of so long a time at once."""

SAMPLED = 20
"""One record in so many is timed by itself."""

RECORDS_A_TURN = 1_000
"""An unpaced sender lets the screen have the event loop after so many."""


async def send_all(
    producer: Producer,
    records: Sequence[SentRecord],
    *,
    topic: str,
    records_per_s: float | None,
    given: Callable[[int], None],
    took: Callable[[float], None],
) -> UndeliveredError | None:
    """Give all records to the producer, then wait until each was delivered or failed.

    Args:
        producer: started.
        records: in the order to keep.
        topic: where they go.
        records_per_s: the pace; None for none.
        given: told how many were given so far, every `TURN_S` or `RECORDS_A_TURN`.
        took: told how many seconds the delivery of every `SAMPLED`th record took.

    Returns:
        What was not delivered, None if all was.

    Raises:
        KafkaError: the producer took no more.
    """
    clock = asyncio.get_running_loop().time
    began_at = clock()
    done = 0
    while done < len(records):
        due = done + RECORDS_A_TURN if records_per_s is None else 1 + int((clock() - began_at) * records_per_s)
        for row, record in enumerate(records[done:due], start=done):
            timed = None if row % SAMPLED else _stopwatch(clock, took)
            await producer.enqueue(topic, record.value, key=record.key, headers=record.headers, on_delivery=timed)
        done = min(max(done, due), len(records))
        given(done)
        await asyncio.sleep(0 if records_per_s is None else TURN_S)
    try:
        await producer.flush()
    except UndeliveredError as undelivered:
        return undelivered
    return None


def _stopwatch(
    clock: Callable[[], float], took: Callable[[float], None]
) -> Callable[[RecordMetadata | None, BaseException | None], None]:
    """Start timing one delivery; a failed one is not told."""
    began_at = clock()

    def stop(_: RecordMetadata | None, error: BaseException | None) -> None:
        if error is None:
            took(clock() - began_at)

    return stop
