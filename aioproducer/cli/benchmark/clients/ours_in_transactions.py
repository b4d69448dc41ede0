"""This producer with a transactional id, on uvloop."""

import uvloop

from aioproducer import Producer
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text

WARM_UP = 3
"""Transactions before the measuring starts."""


def transact(job: Job) -> Outcome:
    """`async with producer.transaction()`, `enqueue` in a loop; the end of the block raises what failed."""

    async def main() -> dict[str, float]:
        async with Producer(job.bootstrap_servers, transactional_id=job.topic, linger_ms=job.linger_ms) as producer:
            for _ in range(WARM_UP):
                await _transact(producer, job)
            stopwatch = Stopwatch()
            for _ in range(job.transactions):
                await _transact(producer, job)
            return stopwatch.figures(job.records)

    figures = uvloop.run(main())
    configuration = as_text({"transactional_id": job.topic, "linger_ms": job.linger_ms})
    return Outcome(job.end_offsets(WARM_UP + job.transactions), figures, configuration)


async def _transact(producer: Producer, job: Job) -> None:
    topic, value, partitions = job.topic, job.value, job.partitions
    async with producer.transaction() as txn:
        for number in range(job.per_transaction):
            await txn.enqueue(topic, value, partition=number % partitions)
