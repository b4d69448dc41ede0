"""This producer, on uvloop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import cycle, islice
from time import perf_counter

import uvloop

from aioproducer import Producer, ProducerOptions
from tests.benchmarks.job import WARMUP_TRANSACTIONS, Job, Outcome, Stopwatch, as_text, figures_of_each, numbered_topics

BETWEEN_ROUNDS_S = 0.01

Work = Callable[[Producer], Awaitable[dict[str, float]]]
"""Runs between warm-up and close; returns the figures."""

Loop = Callable[[Producer, Job, int], Awaitable[None]]
"""Enqueues this number of records."""

Run = Callable[[Coroutine[object, object, dict[str, float]]], dict[str, float]]
"""Runs a coroutine on an event loop of its kind."""


def configuration(job: Job) -> ProducerOptions:
    """Return the options that the job sets; acks=all and idempotence are defaults."""
    options: ProducerOptions = {"linger_ms": job.linger_ms}
    if job.batch_size is not None:
        options["batch_size"] = job.batch_size
    return options


def enqueue(job: Job, run: Run = uvloop.run) -> Outcome:
    """`await enqueue` in a loop, then `flush`; over TLS where the job has a CA."""
    return measure(enqueuing(job.value), job, run=run)


def enqueue_in_turn(job: Job) -> Outcome:
    """One record to each partition in turn, each a batch of its own."""

    async def work(producer: Producer) -> dict[str, float]:
        topic, value, partitions = job.topic, job.value, job.partitions
        stopwatch = Stopwatch()
        for number in range(job.records):
            await producer.enqueue(topic, value, partition=number % partitions)
        await producer.flush()
        return stopwatch.figures(job.records)

    return _run(work, job)


def enqueue_to_all(job: Job) -> Outcome:
    """One record to every partition, and again after a pause that is longer than the linger."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic, value, partitions = job.topic, job.value, job.partitions
        for _ in range(records // partitions):
            for partition in range(partitions):
                await producer.enqueue(topic, value, partition=partition)
            await asyncio.sleep(BETWEEN_ROUNDS_S)

    return measure(loop, job)


def enqueue_to_topics_in_turn(job: Job) -> Outcome:
    """`await enqueue` to each of `job.topics` in turn, then `flush`."""

    async def loop(producer: Producer, job: Job, records: int) -> None:
        value, topics = job.value, job.topic_names
        for topic in islice(cycle(topics), records):
            await producer.enqueue(topic, value)

    return measure(loop, job)


def use_topics_in_turn(job: Job) -> Outcome:
    """Await one record to each of `job.records` topics that were not used before."""

    async def work(producer: Producer) -> dict[str, float]:
        value = job.value
        stopwatch = Stopwatch()
        for topic in numbered_topics(job.records):
            await producer.send(topic, value)
        return stopwatch.figures(job.records)

    return replace(_run(work, job), acknowledged=job.warmup_records)  # in the job's own topic


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each with `await send` in a loop."""

    async def work(producer: Producer) -> dict[str, float]:
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


def latency_on_asyncio(job: Job) -> Outcome:
    """One task that awaits one record after another, on the loop that comes with Python."""
    return latency(job, run=asyncio.run)


def latency(job: Job, run: Run = uvloop.run) -> Outcome:
    """One task that awaits one record after another."""

    async def work(producer: Producer) -> dict[str, float]:
        topic, value = job.topic, job.value
        latencies_s, stopwatch = [], Stopwatch()
        for _ in range(job.records):
            start = perf_counter()
            await producer.send(topic, value)
            latencies_s.append(perf_counter() - start)
        return figures_of_each(latencies_s, stopwatch)

    return _run(work, job, run=run)


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


def enqueuing(value: object) -> Loop:
    async def loop(producer: Producer, job: Job, records: int) -> None:
        topic = job.topic
        for _ in range(records):
            await producer.enqueue(topic, value)

    return loop


def measure(
    loop: Loop,
    job: Job,
    options: ProducerOptions | None = None,
    *,
    run: Run = uvloop.run,
    beside: Callable[[Producer], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """Warm a producer up, and let it enqueue and flush while something else goes on."""

    async def work(producer: Producer) -> dict[str, float]:
        with beside(producer):
            stopwatch = Stopwatch()
            await loop(producer, job, job.records)
            await producer.flush()
            return stopwatch.figures(job.records)

    return _run(work, job, options, warm_up=loop, run=run)


def _run(
    work: Work,
    job: Job,
    options: ProducerOptions | None = None,
    *,
    warm_up: Loop | None = None,
    run: Run = uvloop.run,
) -> Outcome:
    """Start a producer, warm it up, and let it do the work."""
    given: ProducerOptions = {**configuration(job), **(options or {})}
    if job.ca_file:
        given |= ProducerOptions(security_protocol="SSL", ssl_truststore_location=job.ca_file)

    async def main() -> dict[str, float]:
        async with Producer(job.secured_servers or job.bootstrap_servers, **given) as producer:
            await (warm_up or enqueuing(job.value))(producer, job, job.warmup_records)
            await producer.flush()
            return await work(producer)

    return Outcome(job.warmup_records + job.records, run(main()), as_text(dict(configuration(job))))
