"""This producer while its broker is stopped: accepted and refused records, and growth of resident memory."""

import asyncio
import re
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from aioproducer import BufferFullError, Producer
from tests.benchmarks.clients.ours import configuration
from tests.benchmarks.job import Job, Outcome, as_text
from tests.benchmarks.worker import wait_for_go

YIELD_EVERY = 1_000
"""Number of sends without await before the application lets the loop turn."""

Offer = Callable[[Producer], Awaitable[int]]
"""Offers records; returns the number of accepted ones."""

STATUS = Path("/proc/self/status")


def enqueue(job: Job) -> Outcome:
    """Offer `job.records` by `await enqueue` from `job.tasks` tasks."""

    async def offer(producer: Producer) -> int:
        async def enqueue_in_a_loop() -> None:
            for _ in range(job.records // job.tasks):
                await producer.enqueue(job.topic, value)

        value = job.value
        async with asyncio.TaskGroup() as tasks:
            for _ in range(job.tasks):
                tasks.create_task(enqueue_in_a_loop())
        return job.records // job.tasks * job.tasks

    return _run(job, offer)


def send(job: Job) -> Outcome:
    """Offer `job.records` by `send` without await, all before the broker resumes; those beyond the buffer fail."""

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
        await asyncio.to_thread(wait_for_go)  # until the broker resumes
        return accepted

    return _run(job, offer)


def _run(job: Job, offer: Offer) -> Outcome:
    """Warm up, wait until the broker is stopped, offer the records, and wait for the delivery of the accepted ones."""

    async def main() -> Outcome:
        async with Producer(job.bootstrap_servers, **options) as producer:
            for _ in range(job.warmup_records):
                await producer.enqueue(job.topic, job.value)
            await producer.flush()
            await asyncio.to_thread(wait_for_go)
            before = _resident_kib("VmRSS")
            accepted = await offer(producer)
            await producer.flush()
            growth_kib = _resident_kib("VmHWM") - before
        figures = {"rss_growth_mib": growth_kib / 1024, "accepted": accepted, "refused": job.records - accepted}
        return Outcome(job.warmup_records + accepted, figures, as_text(dict(options)))

    options = configuration(job)
    options["buffer_memory"] = job.buffer_memory
    return uvloop.run(main())


def _resident_kib(name: str) -> int:
    """Return resident memory, now (VmRSS) or at its peak (VmHWM); always the peak on systems without /proc."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # in bytes on macOS
    line = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text("ascii"), re.MULTILINE)
    return int(line[1]) if line else 0
