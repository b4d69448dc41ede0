"""confluent-kafka with a transactional id."""

from confluent_kafka import KafkaError, Message, Producer

from aioproducer.cli.benchmark.clients.confluent import POLL_EVERY, POLL_WHEN_FULL_S
from aioproducer.cli.benchmark.job import Job, Outcome, Stopwatch, as_text

WARM_UP = 3
"""Transactions before the measuring starts."""


class DeliveryFailedError(RuntimeError):
    """A record was not delivered."""


def transact(job: Job) -> Outcome:
    """`begin_transaction`, `produce(on_delivery=...)` in a loop, `commit_transaction`."""
    configuration: dict[str, object] = {"transactional.id": job.topic, "linger.ms": job.linger_ms}
    producer = Producer({"bootstrap.servers": job.bootstrap_servers, **configuration})
    producer.init_transactions()
    for _ in range(WARM_UP):
        _transact(producer, job)
    stopwatch = Stopwatch()
    for _ in range(job.transactions):
        _transact(producer, job)
    figures = stopwatch.figures(job.records)
    return Outcome(job.end_offsets(WARM_UP + job.transactions), figures, as_text(configuration))


def _transact(producer: Producer, job: Job) -> None:
    topic, value, partitions = job.topic, job.value, job.partitions
    producer.begin_transaction()
    for number in range(job.per_transaction):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions, on_delivery=_check)
                break
            except BufferError:
                producer.poll(POLL_WHEN_FULL_S)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    producer.commit_transaction()


def _check(error: KafkaError | None, message: Message) -> None:
    """Learn what became of a record.

    Raises:
        DeliveryFailedError: it was not delivered.
    """
    del message
    if error is not None:
        raise DeliveryFailedError(str(error))
