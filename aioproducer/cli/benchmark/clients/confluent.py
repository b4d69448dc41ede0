"""confluent-kafka: librdkafka with its Python face."""

from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text

OnDelivery = Callable[[KafkaError | None, Message], None]

POLL_EVERY = 5_000
"""How many `produce` calls before callbacks are served; its queue holds many more."""

POLL_WHEN_FULL_S = 0.01
"""How long one poll may wait for room in the queue."""

LARGE_QUEUE_RECORDS = 1_000_000
"""Room for the larger batches, where the batch size is not left at its default."""


def enqueue_with_callback(job: Job) -> Outcome:
    """`produce(on_delivery=...)` in a loop, `poll(0)` now and then, then `flush`."""
    delivered = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        del message
        if error is None:
            delivered += 1

    figures = _produce_all(job, on_delivery)
    return Outcome(delivered, figures, as_text(_configuration(job)))


def enqueue(job: Job) -> Outcome:
    """The same without a callback: nobody learns what became of a single record."""
    figures = _produce_all(job, None)
    return Outcome(job.warmup_records + job.records, figures, as_text(_configuration(job)))


def _produce_all(job: Job, on_delivery: OnDelivery | None) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": job.bootstrap_servers, **_configuration(job)})
    _produce(producer, job, job.warmup_records, on_delivery)
    stopwatch = Stopwatch()
    _produce(producer, job, job.records, on_delivery)
    return stopwatch.figures(job.records)


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
    producer.flush()


def _configuration(job: Job) -> dict[str, object]:
    configuration: dict[str, object] = {"acks": "all", "enable.idempotence": True, "linger.ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["batch.size"] = job.batch_size
        configuration["queue.buffering.max.messages"] = LARGE_QUEUE_RECORDS
    return configuration
