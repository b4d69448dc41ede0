"""aiokafka's producer, on uvloop like ours."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import uvloop
from aiokafka import AIOKafkaProducer

from tests.benchmarks.job import WARMUP_TRANSACTIONS, Job, Outcome, Stopwatch, as_text, figures_of_each

Work = Callable[[AIOKafkaProducer, Job], Awaitable[dict[str, float]]]
"""Runs between warm-up and close; returns the figures."""

GATHER_EVERY = 10_000
"""Number of records sent before their results are read."""


def enqueue_with_results(job: Job) -> Outcome:
    """`await producer.send` in a loop, with all results gathered, since its `flush` reports no failure."""

    async def work(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
        topic, value = job.topic, job.value
        stopwatch = Stopwatch()
        results = []
        for _ in range(job.records):
            results.append(await producer.send(topic, value))
            if len(results) == GATHER_EVERY:
                await asyncio.gather(*results)
                results.clear()
        await asyncio.gather(*results)
        return stopwatch.figures(job.records)

    return _run(work, job)


def enqueue(job: Job) -> Outcome:
    """`await producer.send` in a loop, then `flush`; no record's result is read."""

    async def work(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
        topic, value = job.topic, job.value
        stopwatch = Stopwatch()
        for _ in range(job.records):
            await producer.send(topic, value)
        await producer.flush()
        return stopwatch.figures(job.records)

    return _run(work, job)


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each with `await send_and_wait` in a loop."""

    async def work(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
        async def send_in_a_loop() -> None:
            for _ in range(job.records // job.tasks):
                await producer.send_and_wait(topic, value)

        topic, value = job.topic, job.value
        stopwatch = Stopwatch()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(job.tasks):
                tasks.create_task(send_in_a_loop())
        return stopwatch.figures(job.records)

    return _run(work, job)


def latency(job: Job) -> Outcome:
    """One task that awaits one record after another."""

    async def work(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
        topic, value = job.topic, job.value
        latencies_s, stopwatch = [], Stopwatch()
        for _ in range(job.records):
            start = perf_counter()
            await producer.send_and_wait(topic, value)
            latencies_s.append(perf_counter() - start)
        return figures_of_each(latencies_s, stopwatch)

    return _run(work, job)


def transact(job: Job) -> Outcome:
    """`async with producer.transaction()`, `send` in a loop, with all results gathered, since commit reports none."""
    configuration: dict[str, object] = {"transactional_id": job.topic, "linger_ms": job.linger_ms}

    async def transact_once(producer: AIOKafkaProducer) -> None:
        topic, value, partitions = job.topic, job.value, job.partitions
        async with producer.transaction():
            results = [
                await producer.send(topic, value, partition=number % partitions)
                for number in range(job.per_transaction)
            ]
            await asyncio.gather(*results)

    async def main() -> dict[str, float]:
        async with AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, **configuration) as producer:
            for _ in range(WARMUP_TRANSACTIONS):
                await transact_once(producer)
            stopwatch = Stopwatch()
            for _ in range(job.transactions):
                await transact_once(producer)
            return stopwatch.figures(job.records)

    figures = uvloop.run(main())
    return Outcome(job.end_offsets(WARMUP_TRANSACTIONS + job.transactions), figures, as_text(configuration))


def _run(work: Work, job: Job) -> Outcome:
    """Start a producer on uvloop, warm it up, and let it do the work."""

    async def main() -> dict[str, float]:
        async with AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, **configuration) as producer:
            for _ in range(job.warmup_records):
                await producer.send(job.topic, job.value)
            await producer.flush()
            return await work(producer, job)

    configuration: dict[str, object] = {"enable_idempotence": True, "acks": "all", "linger_ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["max_batch_size"] = job.batch_size
    figures = uvloop.run(main())
    return Outcome(job.warmup_records + job.records, figures, as_text(configuration))
