"""Parts of the tests of aiokafka's transactions."""

from aiokafka.structs import TopicPartition

from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster

OFFSETS = {TopicPartition("t", 0): 1}


def transactional(cluster: FakeCluster, **options: object) -> AIOKafkaProducer:
    settings = {"transactional_id": "billing-1", "retry_backoff_ms": 20, **options}
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)  # type: ignore[arg-type]
