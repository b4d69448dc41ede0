"""Producers under load, plain and transactional, and what another client finds in their topics."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import confluent_kafka

from aioproducer import Delivery, Producer, Transaction

PARTITIONS: Final = 3
VALUE_BYTES: Final = 100
MOST_A_SECOND: Final = 20_000
"""Records of one plain load: all of them are read back."""

SLICE_S: Final = 0.01
IN_TRANSACTION: Final = 30
SILENCE_S: Final = 30.0


@dataclass(slots=True)
class Load:
    """Numbered records for each partition of a topic; the next number of each is in `given`."""

    producer: Producer
    topic: str
    given: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    longest_s: float = 0.0  # from the call to the acknowledgement, or of one transaction
    transactions: int = 0

    async def highest_rate(self, seconds: float) -> float:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            await self._give(500)
        await self.producer.flush()
        return sum(self.given) / (time.monotonic() - began)

    async def stream(self, rate: float, stop: asyncio.Event) -> None:
        """Give records at a rate; raises what a record ended with."""
        open_: deque[tuple[float, Delivery]] = deque()
        while not stop.is_set():
            now = time.monotonic()
            open_ += [(now, delivery) for delivery in await self._give(int(rate * SLICE_S) + 1)]
            while open_ and open_[0][1].done():
                self._take(*open_.popleft())
            await asyncio.sleep(SLICE_S)
        while open_:
            began, delivery = open_.popleft()
            await delivery
            self._take(began, delivery)

    async def transact(self, stop: asyncio.Event) -> None:
        """Commit one transaction after the other."""
        while not stop.is_set():
            began = time.monotonic()
            async with self.producer.transaction() as transaction:
                await self._give(IN_TRANSACTION, transaction)
            self.transactions += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            await asyncio.sleep(SLICE_S)

    def _take(self, began: float, delivery: Delivery) -> None:
        delivery.result()
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    async def _give(self, count: int, transaction: Transaction | None = None) -> list[Delivery]:
        enqueue = self.producer.enqueue if transaction is None else transaction.enqueue
        deliveries = []
        for index in range(count):
            partition = index % PARTITIONS
            value = b"%d." % self.given[partition]
            deliveries.append(await enqueue(self.topic, value.ljust(VALUE_BYTES, b"."), partition=partition))
            self.given[partition] += 1
        return deliveries


@dataclass(slots=True)
class Found:
    """What is wrong in a log."""

    records: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0

    def add(self, other: Found) -> None:
        self.records += other.records
        self.lost += other.lost
        self.doubled += other.doubled
        self.out_of_order += other.out_of_order


def read_back(bootstrap: str, load: Load) -> Found:
    """Read the whole topic with another client, and compare it with what was given."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "rotation", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
    found = Found()
    try:
        for partition, given in enumerate(load.given):
            found.add(compared(_numbers(consumer, load.topic, partition), given))
    finally:
        consumer.close()
    return found


def _numbers(consumer: confluent_kafka.Consumer, topic: str, partition: int) -> list[int]:
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    numbers: list[int] = []
    heard = time.monotonic()
    while time.monotonic() < heard + SILENCE_S:
        for message in consumer.consume(5_000, timeout=0.5):
            heard = time.monotonic()
            error = message.error()
            if error is None:
                numbers.append(int((message.value() or b"").partition(b".")[0]))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001  # so it is called
                return numbers
            else:
                raise RuntimeError(str(error))
    raise RuntimeError(f"nothing more of {topic}-{partition} in {SILENCE_S} s, and it has no end")


def compared(numbers: list[int], given: int) -> Found:
    seen = set(numbers)
    first = list(dict.fromkeys(numbers))
    disorder = sum(after < before for before, after in pairwise(first))
    return Found(len(numbers), len(set(range(given)) - seen), len(numbers) - len(seen), disorder)
