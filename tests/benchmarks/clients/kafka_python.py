"""kafka-python's producer."""

from kafka import KafkaProducer

from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text


def enqueue(job: Job) -> Outcome:
    """`send` in a loop, which blocks while the buffer is full, then `flush`."""
    topic, value, configuration = job.topic, job.value, _configuration(job)
    producer = KafkaProducer(bootstrap_servers=job.bootstrap_servers, **configuration)
    for _ in range(job.warmup_records):
        producer.send(topic, value)
    producer.flush()
    stopwatch = Stopwatch()
    for _ in range(job.records):
        producer.send(topic, value)
    producer.flush()
    figures = stopwatch.figures(job.records)
    producer.close()
    return Outcome(job.warmup_records + job.records, figures, as_text(configuration))


def _configuration(job: Job) -> dict[str, object]:
    configuration: dict[str, object] = {"enable_idempotence": True, "acks": "all", "linger_ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["batch_size"] = job.batch_size
    return configuration
