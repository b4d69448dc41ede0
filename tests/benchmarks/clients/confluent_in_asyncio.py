"""confluent-kafka awaited on uvloop: a thread polls, and each callback settles a future.

Its own class for asyncio collects records, by default until there are 1,000 or a second is over, and serves callbacks
when the next ones are handed over: a record that is awaited alone waits there for a second.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import uvloop
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.benchmarks.clients.confluent import configuration_of
from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text, figures_of_each

Work = Callable[["AwaitedProducer"], Awaitable[dict[str, float]]]
"""Runs between warm-up and close; returns the figures."""

POLL_S = 0.1


class AwaitedProducer:
    """A producer whose `send` returns a future of the running loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()

    def send(self, topic: str, value: bytes) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = self._loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._loop.call_soon_threadsafe(_settle, future, error, message)

        self._producer.produce(topic, value, on_delivery=delivered)
        return future


def _settle(future: asyncio.Future[Message], error: KafkaError | None, message: Message) -> None:
    if error is None:
        future.set_result(message)
    else:
        future.set_exception(KafkaException(error))


def await_sends(job: Job) -> Outcome:
    """`job.tasks` tasks, each awaiting `send` in a loop."""

    async def work(producer: AwaitedProducer) -> dict[str, float]:
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

    async def work(producer: AwaitedProducer) -> dict[str, float]:
        topic, value = job.topic, job.value
        latencies_s, stopwatch = [], Stopwatch()
        for _ in range(job.records):
            start = perf_counter()
            await producer.send(topic, value)
            latencies_s.append(perf_counter() - start)
        return figures_of_each(latencies_s, stopwatch)

    return _run(work, job)


def _run(work: Work, job: Job) -> Outcome:
    """Start a producer with its thread on uvloop, warm it up, and let it do the work."""
    configuration = configuration_of(job)

    async def main() -> dict[str, float]:
        with _polled(Producer({"bootstrap.servers": job.bootstrap_servers, **configuration})) as polled:
            producer = AwaitedProducer(polled)
            await asyncio.gather(*(producer.send(job.topic, job.value) for _ in range(job.warmup_records)))
            return await work(producer)

    return Outcome(job.warmup_records + job.records, uvloop.run(main()), as_text(configuration))


@contextmanager
def _polled(producer: Producer) -> Iterator[Producer]:
    """Poll in a thread until the end of the block."""
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(POLL_S)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield producer
    finally:
        ended.set()
        thread.join()
