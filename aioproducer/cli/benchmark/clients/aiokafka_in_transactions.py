"""aiokafka's producer with a transactional id, on uvloop as ours."""

import asyncio

import uvloop
from aiokafka import AIOKafkaProducer

from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text

WARM_UP = 3
"""Transactions before the measuring starts."""


def transact(job: Job) -> Outcome:
    """`async with producer.transaction()`, `send` in a loop; results gathered, as its commit tells none."""
    configuration: dict[str, object] = {"transactional_id": job.topic, "linger_ms": job.linger_ms}

    async def main() -> dict[str, float]:
        async with AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, **configuration) as producer:
            for _ in range(WARM_UP):
                await _transact(producer, job)
            stopwatch = Stopwatch()
            for _ in range(job.transactions):
                await _transact(producer, job)
            return stopwatch.figures(job.records)

    figures = uvloop.run(main())
    return Outcome(job.end_offsets(WARM_UP + job.transactions), figures, as_text(configuration))


async def _transact(producer: AIOKafkaProducer, job: Job) -> None:
    topic, value, partitions = job.topic, job.value, job.partitions
    async with producer.transaction():
        results = [
            await producer.send(topic, value, partition=number % partitions) for number in range(job.per_transaction)
        ]
        await asyncio.gather(*results)
