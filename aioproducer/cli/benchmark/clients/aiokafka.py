"""aiokafka's producer, on uvloop as ours."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import uvloop
from aiokafka import AIOKafkaProducer

from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text
from aioproducer.cli.benchmark.latencies import latency_figures

Work = Callable[[AIOKafkaProducer, Job], Awaitable[dict[str, float]]]
"""What is done between warm-up and end; returns the figures."""


GATHER_EVERY = 10_000
"""How many records are sent before their results are looked at."""


def enqueue_with_results(job: Job) -> Outcome:
    """`await producer.send` in a loop, which waits for room in a batch; results gathered, as its `flush` tells none."""
    return _run(_enqueue_with_results, job)


def enqueue(job: Job) -> Outcome:
    """`await producer.send` in a loop, then `flush`; nobody learns what became of a single record."""
    return _run(_enqueue, job)


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each `await send_and_wait` in a loop."""
    return _run(_await_sends, job)


def latency(job: Job) -> Outcome:
    """One task, one record after another, each awaited: how long each takes."""
    return _run(_latency, job)


def _run(work: Work, job: Job) -> Outcome:
    """Start a producer on uvloop, warm it up, and let it do the work."""

    async def main() -> dict[str, float]:
        async with AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, **configuration) as producer:
            for _ in range(job.warmup_records):
                await producer.send(job.topic, job.value)
            await producer.flush()
            return await work(producer, job)

    configuration = _configuration(job)
    figures = uvloop.run(main())
    return Outcome(job.warmup_records + job.records, figures, as_text(configuration))


def _configuration(job: Job) -> dict[str, object]:
    configuration: dict[str, object] = {"enable_idempotence": True, "acks": "all", "linger_ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["max_batch_size"] = job.batch_size
    return configuration


async def _enqueue_with_results(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
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


async def _enqueue(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value
    stopwatch = Stopwatch()
    for _ in range(job.records):
        await producer.send(topic, value)
    await producer.flush()
    return stopwatch.figures(job.records)


async def _await_sends(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value

    async def send_in_a_loop() -> None:
        for _ in range(job.records // job.tasks):
            await producer.send_and_wait(topic, value)

    stopwatch = Stopwatch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(job.tasks):
            tasks.create_task(send_in_a_loop())
    return stopwatch.figures(job.records)


async def _latency(producer: AIOKafkaProducer, job: Job) -> dict[str, float]:
    topic, value = job.topic, job.value
    latencies_s = []
    for _ in range(job.records):
        start = perf_counter()
        await producer.send_and_wait(topic, value)
        latencies_s.append(perf_counter() - start)
    return latency_figures(latencies_s)
