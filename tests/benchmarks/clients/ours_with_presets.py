"""This producer with the presets of `ProducerConfig` and with the defaults, and `MockProducer`, on uvloop."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from random import Random
from time import perf_counter

import uvloop

from aioproducer import Producer, ProducerConfig
from aioproducer.testing import MockProducer
from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text, latency_figures

PRESETS: dict[str, Callable[[str], ProducerConfig]] = {
    "defaults": lambda servers: ProducerConfig(bootstrap_servers=servers),
    "low_latency": ProducerConfig.low_latency,
    "throughput": ProducerConfig.throughput,
    "durable": ProducerConfig.durable,
}
PAUSE_S = 0.002
"""Between two records of `callbacks`."""


def orders(number: int) -> list[bytes]:
    """Return JSON documents as services send them, about 200 bytes each."""
    random = Random(1)  # the same in every run
    return [
        json.dumps(
            {
                "id": random.getrandbits(48),
                "customer": f"customer-{random.randrange(10_000)}",
                "article": random.choice(["teapot", "kettle", "cup", "saucer", "strainer"]),
                "quantity": random.randrange(1, 9),
                "price": round(random.uniform(1, 99), 2),
                "currency": "EUR",
                "paid": random.random() < 0.5,
                "address": f"{random.randrange(200)} Long Lane, Anytown",
                "at": f"2026-11-26T10:{random.randrange(60):02}:{random.randrange(60):02}Z",
            }
        ).encode()
        for _ in range(number)
    ]


def enqueue(job: Job, preset: str) -> Outcome:
    """`await enqueue` in a loop, then `flush`."""

    async def main() -> dict[str, float]:
        values = orders(1_000)
        async with Producer(PRESETS[preset](job.bootstrap_servers)) as producer:
            for value in islice(cycle(values), job.warmup_records):
                await producer.enqueue(job.topic, value)
            await producer.flush()
            sent_before, stopwatch = producer.statistics().bytes_sent, Stopwatch()
            for value in islice(cycle(values), job.records):
                await producer.enqueue(job.topic, value)
            await producer.flush()
            sent = producer.statistics().bytes_sent - sent_before
            return {**stopwatch.figures(job.records), "sent_bytes_per_record": sent / job.records}

    return _outcome(job, preset, uvloop.run(main()))


def callbacks(job: Job, preset: str) -> Outcome:
    """One record after another that no one awaits: from its call to its callback."""

    async def main() -> dict[str, float]:
        latencies_s: list[float] = []

        def note(start: float, *_: object) -> None:
            latencies_s.append(perf_counter() - start)

        async with Producer(PRESETS[preset](job.bootstrap_servers)) as producer:
            for value in islice(cycle(orders(100)), job.warmup_records + job.records):
                producer.send(job.topic, value, on_delivery=partial(note, perf_counter()))
                await asyncio.sleep(PAUSE_S)
            await producer.flush()
        return latency_figures(latencies_s[job.warmup_records :])

    return _outcome(job, preset, uvloop.run(main()))


def send_to_mock(job: Job) -> Outcome:
    """`MockProducer.send` in a loop, then `flush`: what unit tests pay."""

    async def main() -> dict[str, float]:
        async with MockProducer(topics={job.topic: job.partitions}) as producer:
            for _ in range(job.warmup_records):
                producer.send(job.topic, job.value)
            await producer.flush()
            producer.clear()
            topic, value = job.topic, job.value
            stopwatch = Stopwatch()
            for _ in range(job.records):
                producer.send(topic, value)
            await producer.flush()
            return stopwatch.figures(job.records)

    return Outcome(0, uvloop.run(main()))  # the broker gets none


def _outcome(job: Job, preset: str, figures: dict[str, float]) -> Outcome:
    return Outcome(
        job.warmup_records + job.records, figures, as_text(dict(PRESETS[preset](job.bootstrap_servers).given))
    )


enqueue_defaults = partial(enqueue, preset="defaults")
enqueue_throughput = partial(enqueue, preset="throughput")
enqueue_durable = partial(enqueue, preset="durable")
callbacks_defaults = partial(callbacks, preset="defaults")
callbacks_low_latency = partial(callbacks, preset="low_latency")
