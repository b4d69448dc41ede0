"""confluent-kafka, with text that is encoded for each record: key, value and two headers."""

from confluent_kafka import KafkaError, Message, Producer

from aioproducer.cli.benchmark.clients.confluent import POLL_EVERY, POLL_WHEN_FULL_S, OnDelivery
from aioproducer.cli.benchmark.job import KEY, TEXT_HEADERS, Job, Outcome, Stopwatch, as_text


def enqueue(job: Job) -> Outcome:
    """`produce(on_delivery=...)` in a loop, `poll(0)` now and then, then `flush`."""
    configuration: dict[str, object] = {"acks": "all", "enable.idempotence": True, "linger.ms": job.linger_ms}
    delivered = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        del message
        if error is None:
            delivered += 1

    producer = Producer({"bootstrap.servers": job.bootstrap_servers, **configuration})
    _produce(producer, job, job.warmup_records, on_delivery)
    stopwatch = Stopwatch()
    _produce(producer, job, job.records, on_delivery)
    return Outcome(delivered, stopwatch.figures(job.records), as_text(configuration))


def _produce(producer: Producer, job: Job, records: int, on_delivery: OnDelivery) -> None:
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
    producer.flush()
