"""This producer, on uvloop: what each scenario has it do."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import uvloop

from aioproducer import Producer, ProducerOptions
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text
from aioproducer.cli.benchmark.latencies import latency_figures

Work = Callable[[Producer, Job], Awaitable[dict[str, float]]]
"""What is done between warm-up and end; returns the figures."""


def enqueue(job: Job) -> Outcome:
    """`await enqueue` in a loop, then `flush`."""
    return _run(_enqueue, job)


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each `await send` in a loop."""
    return _run(_await_sends, job)


def latency(job: Job) -> Outcome:
    """One task, one record after another, each awaited: how long each takes."""
    return _run(_latency, job)


def enqueue_in_turn(job: Job) -> Outcome:
    """One record to each partition in turn, each a batch of its own."""
    return _run(_enqueue_in_turn, job)


def configuration(job: Job) -> ProducerOptions:
    """The defaults, but for what the job fixes; acks=all and idempotence are the default."""
    options: ProducerOptions = {"linger_ms": job.linger_ms}
    if job.batch_size is not None:
        options["batch_size"] = job.batch_size
    return options


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


async def _enqueue(producer: Producer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value
    stopwatch = Stopwatch()
    for _ in range(job.records):
        await producer.enqueue(topic, value)
    await producer.flush()
    return stopwatch.figures(job.records)


async def _await_sends(producer: Producer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value

    async def send_in_a_loop() -> None:
        for _ in range(job.records // job.tasks):
            await producer.send(topic, value)

    stopwatch = Stopwatch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(job.tasks):
            tasks.create_task(send_in_a_loop())
    return stopwatch.figures(job.records)


async def _latency(producer: Producer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value
    latencies_s = []
    for _ in range(job.records):
        start = perf_counter()
        await producer.send(topic, value)
        latencies_s.append(perf_counter() - start)
    return latency_figures(latencies_s)


async def _enqueue_in_turn(producer: Producer, job: Job) -> dict[str, float]:
    topic, value, partitions = job.topic, job.value, job.partitions
    stopwatch = Stopwatch()
    for number in range(job.records):
        await producer.enqueue(topic, value, partition=number % partitions)
    await producer.flush()
    return stopwatch.figures(job.records)
