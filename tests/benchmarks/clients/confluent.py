"""confluent-kafka: librdkafka with its Python interface.

Each loop calls `produce` itself: a function call per record in between would be charged to this client.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from time import perf_counter

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks.job import (
    KEY,
    TEXT_HEADERS,
    WARMUP_TRANSACTIONS,
    Job,
    Outcome,
    Stopwatch,
    as_text,
    latency_figures,
)

OnDelivery = Callable[[KafkaError | None, Message], None]
Loop = Callable[[Producer, Job, int, OnDelivery | None], None]
"""Produces this number of records."""

POLL_EVERY = 5_000
"""Number of `produce` calls before callbacks are served; the queue holds many more."""

POLL_WHEN_FULL_S = 0.01
LARGE_QUEUE_RECORDS = 1_000_000
"""Size of the queue for the larger batches."""


class DeliveryFailedError(RuntimeError):
    """A record was not delivered."""


def enqueue_with_callback(job: Job) -> Outcome:
    """`produce(on_delivery=...)` in a loop, `poll(0)` now and then, then `flush`."""
    return _measure(job, _produce, _check)


def enqueue(job: Job) -> Outcome:
    """`produce` without a callback, so that no record's result is known."""
    return _measure(job, _produce, None)


def enqueue_to_topics_in_turn(job: Job) -> Outcome:
    """`produce(on_delivery=...)` to each of `job.topics` in turn, then `flush`."""
    return _measure(job, _produce_to_topics, _check)


def enqueue_text(job: Job) -> Outcome:
    """`produce(on_delivery=...)` of text that is encoded for each record: key, value and two headers."""
    return _measure(job, _produce_text, _check)


def latency(job: Job) -> Outcome:
    """`produce(on_delivery=...)` of one record, then `poll` until its callback was called."""
    latencies_s: list[float] = []
    called: list[object] = []

    def note(error: KafkaError | None, message: Message) -> None:
        _check(error, message)
        called.append(message)

    def produce_each(producer: Producer, job: Job, records: int, nothing: OnDelivery | None) -> None:
        del nothing
        topic, value = job.topic, job.value
        for _ in range(records):
            start = perf_counter()
            producer.produce(topic, value, on_delivery=note)
            while not called:
                producer.poll(1)
            called.clear()
            latencies_s.append(perf_counter() - start)

    outcome = _measure(job, produce_each, None)
    cpu = outcome.figures["cpu_us_per_record"]
    return replace(outcome, figures={"cpu_us_per_record": cpu, **latency_figures(latencies_s[job.warmup_records :])})


def transact(job: Job) -> Outcome:
    """`begin_transaction`, `produce(on_delivery=...)` in a loop, `commit_transaction`."""

    def transact_once() -> None:
        producer.begin_transaction()
        _produce_to_partitions(producer, job, job.per_transaction, _check)
        producer.commit_transaction()

    configuration: dict[str, object] = {"transactional.id": job.topic, "linger.ms": job.linger_ms}
    producer = Producer({"bootstrap.servers": job.bootstrap_servers, **configuration})
    producer.init_transactions()
    for _ in range(WARMUP_TRANSACTIONS):
        transact_once()
    stopwatch = Stopwatch()
    for _ in range(job.transactions):
        transact_once()
    figures = stopwatch.figures(job.records)
    return Outcome(job.end_offsets(WARMUP_TRANSACTIONS + job.transactions), figures, as_text(configuration))


def configuration_of(job: Job) -> dict[str, object]:
    configuration: dict[str, object] = {"acks": "all", "enable.idempotence": True, "linger.ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["batch.size"] = job.batch_size
        configuration["queue.buffering.max.messages"] = LARGE_QUEUE_RECORDS
    return configuration


def _measure(job: Job, loop: Loop, on_delivery: OnDelivery | None) -> Outcome:
    configuration = configuration_of(job)
    secured = {"security.protocol": "SSL", "ssl.ca.location": job.ca_file} if job.ca_file else {}
    producer = Producer({"bootstrap.servers": job.secured_servers or job.bootstrap_servers, **configuration, **secured})
    loop(producer, job, job.warmup_records, on_delivery)
    producer.flush()
    stopwatch = Stopwatch()
    loop(producer, job, job.records, on_delivery)
    producer.flush()
    return Outcome(job.warmup_records + job.records, stopwatch.figures(job.records), as_text(configuration))


def _produce(producer: Producer, job: Job, records: int, on_delivery: OnDelivery | None) -> None:
    topic, value = job.topic, job.value
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_WHEN_FULL_S)
        if number % POLL_EVERY == 0:
            producer.poll(0)


def _produce_to_topics(producer: Producer, job: Job, records: int, on_delivery: OnDelivery | None) -> None:
    value, topics = job.value, job.topic_names
    for number, topic in enumerate(islice(cycle(topics), records)):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_WHEN_FULL_S)
        if number % POLL_EVERY == 0:
            producer.poll(0)


def _produce_text(producer: Producer, job: Job, records: int, on_delivery: OnDelivery | None) -> None:
    topic, value = job.topic, job.value.decode()
    (first, trace), (second, source) = TEXT_HEADERS
    for number in range(records):
        while True:
            try:
                headers: list[tuple[str, str | bytes | None]] = [(first, trace.encode()), (second, source.encode())]
                producer.produce(topic, value.encode(), KEY.encode(), headers=headers, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_WHEN_FULL_S)
        if number % POLL_EVERY == 0:
            producer.poll(0)


def _produce_to_partitions(producer: Producer, job: Job, records: int, on_delivery: OnDelivery | None) -> None:
    topic, value, partitions = job.topic, job.value, job.partitions
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_WHEN_FULL_S)
        if number % POLL_EVERY == 0:
            producer.poll(0)


def _check(error: KafkaError | None, message: Message) -> None:
    del message
    if error is not None:
        raise DeliveryFailedError(str(error))
