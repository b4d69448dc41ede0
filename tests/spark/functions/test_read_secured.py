"""The reader over TLS and SASL, with the options of a write, on real Kafka and on the embedded cluster."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import BlockingProducer, ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.spark._options import SinkOptions, SourceOptions
from aioproducer.spark._reader import KafkaReader
from aioproducer.testing import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster

SECURITY = ClusterSecurity()
WAYS = [
    ("SSL", ""),
    ("MTLS", ""),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_MTLS", "SCRAM-SHA-256"),
]


@pytest.fixture(scope="module")
def secured(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    kafka = KafkaCluster("4.3.1", security=SECURITY)
    kafka_thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield kafka
    kafka_thread.submit(lambda: asyncio.run(kafka.stop())).result()


def options_of(cluster: KafkaCluster, way: tuple[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in cluster.client_properties(*way).items()}


@pytest.mark.kafka
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_records_are_read_with_the_options_of_a_write(secured: KafkaCluster, way: tuple[str, str]) -> None:
    topic, options = "-".join(part for part in way if part).lower().replace("_", "-"), options_of(secured, way)
    written = SinkOptions.parse({**options, "topic": topic})
    with BlockingProducer(ProducerConfig.from_kafka_properties(written.task_properties())) as producer:
        for row in range(100):
            producer.enqueue(topic, str(row).encode(), partition=0)
        producer.flush()

    reader = KafkaReader(SourceOptions.parse({**options, "subscribe": topic}, is_stream=False))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    values = [value for batch in batches for value in batch.column("value").to_pylist()]

    assert values == [str(row).encode() for row in range(100)]


@pytest.mark.kafka
def test_wrong_password_is_the_error_of_the_driver(secured: KafkaCluster) -> None:
    options = options_of(secured, ("SASL_SSL", "PLAIN"))
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace("alice-secret", "canary-wrong")
    reader = KafkaReader(SourceOptions.parse({**options, "subscribe": "any"}, is_stream=False))
    with pytest.raises(KafkaError, match="refused user 'alice'"):
        reader.partitions()
