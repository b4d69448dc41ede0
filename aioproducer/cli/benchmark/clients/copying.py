"""Consume, transform, produce, nothing transformed: ours, and the same loop with aiokafka's producer.

Both read with aiokafka's consumer. The input is written before the measuring, which begins with the first batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from aioproducer import Producer
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text
from aioproducer.integrations.aiokafka import exactly_once

POLL_MS = 1_000


class Copied:
    """How much is copied, and since when."""

    def __init__(self) -> None:
        self.records = 0
        self.end_offsets = 0
        self._stopwatch: Stopwatch | None = None

    def begin(self, records: Sequence[ConsumerRecord]) -> None:
        """One more transaction: its records, and a marker in each partition."""
        self._stopwatch = self._stopwatch or Stopwatch()
        self.records += len(records)
        self.end_offsets += len(records) + len({record.partition for record in records})

    def figures(self) -> dict[str, float]:
        """Rate and cost since the first batch."""
        assert self._stopwatch is not None
        return self._stopwatch.figures(self.records)


Copy = Callable[[AIOKafkaConsumer, Job, Copied], Awaitable[dict[str, float]]]
"""Copies all; returns the figures."""


def ours(job: Job) -> Outcome:
    """`exactly_once`, `enqueue` in its loop."""
    return _run(_copy_with_ours, job)


def aiokafka(job: Job) -> Outcome:
    """`getmany`, `transaction`, `send_offsets_to_transaction`; results gathered, as its commit tells none."""
    return _run(_copy_with_aiokafka, job)


def _run(copy: Copy, job: Job) -> Outcome:
    """Write the input, and copy it."""
    copied = Copied()

    async def main() -> dict[str, float]:
        source = f"{job.topic}-input"
        async with Producer(job.bootstrap_servers) as producer:
            for number in range(job.records):
                await producer.enqueue(source, job.value, partition=number % job.partitions)
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=job.bootstrap_servers,
            group_id=job.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        async with consumer:
            return await copy(consumer, job, copied)

    figures = uvloop.run(main())
    configuration = as_text({"transactional_id": job.topic, "linger_ms": job.linger_ms})
    return Outcome(copied.end_offsets, figures, configuration)


async def _copy_with_ours(consumer: AIOKafkaConsumer, job: Job, copied: Copied) -> dict[str, float]:
    topic = job.topic
    async with (
        Producer(job.bootstrap_servers, transactional_id=topic, linger_ms=job.linger_ms) as producer,
        exactly_once(consumer, producer, max_records=job.per_transaction) as batches,
    ):
        async for records, txn in batches:
            copied.begin(records)
            for record in records:
                await txn.enqueue(topic, record.value, partition=record.partition)
            if copied.records == job.records:
                batches.stop()
        return copied.figures()


async def _copy_with_aiokafka(consumer: AIOKafkaConsumer, job: Job, copied: Copied) -> dict[str, float]:
    options = {"bootstrap_servers": job.bootstrap_servers, "transactional_id": job.topic, "linger_ms": job.linger_ms}
    async with AIOKafkaProducer(**options) as producer:
        while copied.records < job.records:
            fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=job.per_transaction)
            records = [record for of_partition in fetched.values() for record in of_partition]
            if not records:
                continue
            copied.begin(records)
            async with producer.transaction():
                results = [await producer.send(job.topic, each.value, partition=each.partition) for each in records]
                offsets = {partition: found[-1].offset + 1 for partition, found in fetched.items()}
                await producer.send_offsets_to_transaction(offsets, job.topic)
                await asyncio.gather(*results)
        return copied.figures()
