"""This producer while its broker stands still, and while a probe shares its event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import uvloop

from aioproducer import BufferFullError, Producer
from aioproducer.cli.benchmark.clients.ours import configuration
from aioproducer.cli.benchmark.job import Job, Outcome, as_text
from aioproducer.cli.benchmark.latencies import lag_figures
from aioproducer.cli.benchmark.resident_memory import peak_resident_bytes, reset_peak, resident_bytes
from aioproducer.cli.benchmark.worker import wait_for_go

PROBE_INTERVAL_S = 0.005
"""How long the probe of the event loop sleeps each time."""

PACE_INTERVAL_S = 0.001
"""How often a paced sender wakes up."""

YIELD_EVERY = 1_000
"""How many un-awaited sends an application makes before it lets the loop turn."""

Offer = Callable[[Producer], Awaitable[int]]
"""Offers records; returns how many were accepted."""


def enqueue_stalled(job: Job) -> Outcome:
    """Offer `job.records` by `await enqueue` from `job.tasks` tasks while the broker stands still."""

    async def offer(producer: Producer) -> int:
        async def enqueue_in_a_loop() -> None:
            for _ in range(job.records // job.tasks):
                await producer.enqueue(job.topic, value)

        value = job.value
        async with asyncio.TaskGroup() as tasks:
            for _ in range(job.tasks):
                tasks.create_task(enqueue_in_a_loop())
        return job.records // job.tasks * job.tasks

    return _run_stalled(job, offer)


def send_stalled(job: Job) -> Outcome:
    """Offer `job.records` by `send` without await, all of them before the broker goes on; the rest is refused."""

    async def offer(producer: Producer) -> int:
        accepted, value = 0, job.value
        for number in range(job.records):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            try:
                producer.send(job.topic, value)
            except BufferFullError:
                continue
            accepted += 1
        await asyncio.to_thread(wait_for_go)  # until the broker goes on
        return accepted

    return _run_stalled(job, offer)


def lag_at_half_rate(job: Job) -> Outcome:
    """Find the maximum rate for `job.seconds`, then send at half of it for as long, with the probe beside it."""
    return uvloop.run(_lag_at_half_rate(job))


def lag_of_sleeper(job: Job) -> Outcome:
    """The same probe in a process that only sleeps."""
    return Outcome(0, lag_figures(uvloop.run(_probe(job.seconds))))


def _run_stalled(job: Job, offer: Offer) -> Outcome:
    """Warm up, wait until the broker is stopped, offer the records, and wait until all accepted are delivered."""

    async def main() -> Outcome:
        async with Producer(job.bootstrap_servers, **options) as producer:
            for _ in range(job.warmup_records):
                await producer.enqueue(job.topic, job.value)
            await producer.flush()
            await asyncio.to_thread(wait_for_go)
            reset_peak()
            before = resident_bytes()
            accepted = await offer(producer)
            await producer.flush()
            growth = peak_resident_bytes() - before
        figures = {"rss_growth_mib": growth / 2**20, "accepted": accepted, "refused": job.records - accepted}
        return Outcome(job.warmup_records + accepted, figures, as_text(dict(options)))

    options = configuration(job)
    options["buffer_memory"] = job.buffer_memory
    return uvloop.run(main())


async def _lag_at_half_rate(job: Job) -> Outcome:
    async with Producer(job.bootstrap_servers, **configuration(job)) as producer:
        most = await _send_at_most(producer, job)
        rate = most / job.seconds / 2
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(_probe(job.seconds))
            sent = await _send_at(producer, job, rate)
        await producer.flush()
    return Outcome(
        most + sent, {"records_per_s": rate, **lag_figures(probe.result())}, as_text(dict(configuration(job)))
    )


async def _send_at_most(producer: Producer, job: Job) -> int:
    """Send as fast as it goes for `job.seconds`; returns how many."""
    sent, end = 0, perf_counter() + job.seconds
    while perf_counter() < end:
        for _ in range(YIELD_EVERY):
            await producer.enqueue(job.topic, job.value)
        sent += YIELD_EVERY
    await producer.flush()
    return sent


async def _send_at(producer: Producer, job: Job, rate: float) -> int:
    """Send so many records a second, evenly, for `job.seconds`; returns how many."""
    value, sent, start = job.value, 0, perf_counter()
    while (elapsed := perf_counter() - start) < job.seconds:
        due = int(elapsed * rate) - sent
        for _ in range(due):
            await producer.enqueue(job.topic, value)
        sent += due
        await asyncio.sleep(PACE_INTERVAL_S)
    return sent


async def _probe(seconds: float) -> list[float]:
    """Sleep over and over; returns by how much each sleep was late, in seconds.

    The clock is not the loop's: uvloop's has a resolution of a millisecond.
    """
    lags, end = [], perf_counter() + seconds
    while (start := perf_counter()) < end:
        await asyncio.sleep(PROBE_INTERVAL_S)
        lags.append(perf_counter() - start - PROBE_INTERVAL_S)
    return lags
