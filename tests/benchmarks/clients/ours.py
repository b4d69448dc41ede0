"""This producer, on uvloop."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import uvloop

from aioproducer import Producer, ProducerOptions
from tests.benchmarks.job import WARMUP_TRANSACTIONS, Job, Outcome, Stopwatch, as_text, latency_figures

Work = Callable[[Producer, Job], Awaitable[dict[str, float]]]
"""Runs between warm-up and close; returns the figures."""


def configuration(job: Job) -> ProducerOptions:
    """Return the options that the job sets; acks=all and idempotence are defaults."""
    options: ProducerOptions = {"linger_ms": job.linger_ms}
    if job.batch_size is not None:
        options["batch_size"] = job.batch_size
    return options


def enqueue(job: Job) -> Outcome:
    """`await enqueue` in a loop, then `flush`."""

    async def work(producer: Producer, job: Job) -> dict[str, float]:
        topic, value = job.topic, job.value
        stopwatch = Stopwatch()
        for _ in range(job.records):
            await producer.enqueue(topic, value)
        await producer.flush()
        return stopwatch.figures(job.records)

    return _run(work, job)


def enqueue_in_turn(job: Job) -> Outcome:
    """One record to each partition in turn, each a batch of its own."""

    async def work(producer: Producer, job: Job) -> dict[str, float]:
        topic, value, partitions = job.topic, job.value, job.partitions
        stopwatch = Stopwatch()
        for number in range(job.records):
            await producer.enqueue(topic, value, partition=number % partitions)
        await producer.flush()
        return stopwatch.figures(job.records)

    return _run(work, job)


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each with `await send` in a loop."""

    async def work(producer: Producer, job: Job) -> dict[str, float]:
        async def send_in_a_loop() -> None:
            for _ in range(job.records // job.tasks):
                await producer.send(topic, value)

        topic, value = job.topic, job.value
        stopwatch = Stopwatch()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(job.tasks):
                tasks.create_task(send_in_a_loop())
        return stopwatch.figures(job.records)

    return _run(work, job)


def latency(job: Job) -> Outcome:
    """One task that awaits one record after another."""

    async def work(producer: Producer, job: Job) -> dict[str, float]:
        topic, value = job.topic, job.value
        latencies_s = []
        for _ in range(job.records):
            start = perf_counter()
            await producer.send(topic, value)
            latencies_s.append(perf_counter() - start)
        return latency_figures(latencies_s)

    return _run(work, job)


def transact(job: Job) -> Outcome:
    """`async with producer.transaction()`, `enqueue` in a loop; the end of the block raises any failure."""

    async def transact_once(producer: Producer) -> None:
        topic, value, partitions = job.topic, job.value, job.partitions
        async with producer.transaction() as txn:
            for number in range(job.per_transaction):
                await txn.enqueue(topic, value, partition=number % partitions)

    async def main() -> dict[str, float]:
        async with Producer(job.bootstrap_servers, transactional_id=job.topic, linger_ms=job.linger_ms) as producer:
            for _ in range(WARMUP_TRANSACTIONS):
                await transact_once(producer)
            stopwatch = Stopwatch()
            for _ in range(job.transactions):
                await transact_once(producer)
            return stopwatch.figures(job.records)

    figures = uvloop.run(main())
    shown = as_text({"transactional_id": job.topic, "linger_ms": job.linger_ms})
    return Outcome(job.end_offsets(WARMUP_TRANSACTIONS + job.transactions), figures, shown)


def _run(work: Work, job: Job) -> Outcome:
    """Start a producer on uvloop, warm it up, and let it do the work."""

    async def main() -> dict[str, float]:
        async with Producer(job.bootstrap_servers, **configuration(job)) as producer:
            for _ in range(job.warmup_records):
                await producer.enqueue(job.topic, job.value)
            await producer.flush()
            return await work(producer, job)

    figures = uvloop.run(main())
    return Outcome(job.warmup_records + job.records, figures, as_text(dict(configuration(job))))
