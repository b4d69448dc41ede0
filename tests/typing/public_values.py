"""Types of the public values that checkers must accept and infer. Checked, never run."""

from dataclasses import replace
from typing import assert_type

from aioproducer import (
    BrokerError,
    JsonSerializer,
    KafkaError,
    Outcome,
    ProducerConfig,
    ProducerInterceptor,
    ProducerOptions,
    ProducerRecord,
    RecordMetadata,
    RoundRobinPartitioner,
    StringSerializer,
    TopicPartition,
    UndeliveredError,
    partition_for_key,
)


class Order:
    def as_bytes(self) -> bytes:
        return b""


class OrderSerializer:
    def serialize(self, topic: str, value: Order) -> bytes | None:
        return value.as_bytes() if topic else None


def order_as_bytes(order: Order) -> bytes:
    return order.as_bytes()


class Tracing(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, headers=(*record.headers, ("trace", b"1")))


class ByLength:
    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: object,
    ) -> int:
        """Return a partition that depends on the length."""
        return partition_for_key(key_bytes or value_bytes or topic.encode(), 3) if cluster or key or value else 0


config = ProducerConfig(
    bootstrap_servers=["a:9092", "b:9092"],
    acks="all",
    linger_ms=20,
    compression_type="zstd",
    key_serializer=StringSerializer(),
    value_serializer=order_as_bytes,
    partitioner=ByLength(),
    interceptors=[Tracing()],
)
ProducerConfig(bootstrap_servers="a:9092", value_serializer=OrderSerializer(), partitioner=RoundRobinPartitioner())
ProducerConfig(bootstrap_servers="a:9092", value_serializer=JsonSerializer(default=str), key_serializer=None)
ProducerConfig(bootstrap_servers="a:9092", linger_ms="5")  # type: ignore[arg-type]
ProducerConfig(bootstrap_servers="a:9092", linger=5)  # type: ignore[call-arg]
ProducerConfig(bootstrap_servers="a:9092", acks=2)  # type: ignore[arg-type]

options: ProducerOptions = {"linger_ms": 5, "acks": 1}
assert_type(ProducerConfig.of("a:9092", options), ProducerConfig)
assert_type(config.replace(linger_ms=0), ProducerConfig)
assert_type(config.acks, int)
assert_type(config.bootstrap, tuple[tuple[str, int], ...])
assert_type(config.compression_type, str)


def read(metadata: RecordMetadata) -> TopicPartition:
    assert_type(metadata.offset, int)
    return metadata.topic_partition


def look(error: KafkaError) -> None:
    assert_type(error.outcome, Outcome | None)
    assert_type(error.partition, int | None)
    assert_type(error.fresh(), KafkaError)
    if isinstance(error, BrokerError):
        assert_type(error.code, int)
        assert_type(error.topic_partition, tuple[str, int] | None)
    if isinstance(error, UndeliveredError):
        assert_type(error.count, int)
        assert_type(error.exceptions, tuple[KafkaError, ...])
