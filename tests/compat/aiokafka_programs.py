"""Producers with aiokafka's interface on the embedded cluster."""

from aiokafka.structs import TopicPartition

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster

OFFSETS = {TopicPartition("t", 0): 1}


def producer_of(cluster: FakeCluster, **options: object) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)  # type: ignore[arg-type]


def transactional(cluster: FakeCluster, **options: object) -> AIOKafkaProducer:
    return producer_of(cluster, **{"transactional_id": "billing-1", "retry_backoff_ms": 20, **options})
