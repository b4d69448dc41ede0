"""A steady load: numbered records for every partition, as fast as can be or at a rate."""

import asyncio
import time

from aioproducer import Producer

VALUE_BYTES = 100
SLICE_S = 0.01
LONGEST_DEBT_S = 0.5  # limit for catching up: what a stop of the brokers held back beyond it is left out


class Load:
    """Gives records to one topic.

    The value of a record begins with its number in its partition, so that a reader of the partition sees what is
    missing, doubled or out of order.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self.accepted = [0] * partitions  # records by partition; the next one's number

    async def rush(self, seconds: float) -> float:
        began, before = time.monotonic(), sum(self.accepted)
        while time.monotonic() - began < seconds:
            await self._give(1_000)
        await self._producer.flush()
        return (sum(self.accepted) - before) / (time.monotonic() - began)

    async def stream(self, rate: float, until: float) -> None:
        """Give records at a rate (a second) until a monotonic time."""
        given, began = 0.0, time.monotonic()
        while (now := time.monotonic()) < until:
            due = (now - began) * rate - given
            if due > LONGEST_DEBT_S * rate:
                given += due - LONGEST_DEBT_S * rate
                due = LONGEST_DEBT_S * rate
            count = min(int(due), int(rate * SLICE_S) + 1)
            given += count
            await self._give(count)
            await asyncio.sleep(SLICE_S if due < rate * SLICE_S else 0)

    async def _give(self, count: int) -> None:
        accepted, topic, enqueue = self.accepted, self._topic, self._producer.enqueue
        partitions = len(accepted)
        for number in range(count):
            partition = number % partitions
            value = (b"%d " % accepted[partition]).ljust(VALUE_BYTES, b".")
            await enqueue(topic, value, partition=partition)
            accepted[partition] += 1
