"""`BlockingProducer` over TLS and SASL: records, transactions, wrong passwords, sessions that end, and a fork."""

import os
import time
from collections.abc import Iterator
from typing import cast

import pytest

from aioproducer import BlockingProducer, CredentialsError, IllegalStateError
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from aioproducer.testing.kafka import KafkaCluster

SECURITY = ClusterSecurity(session_lifetime_ms=1_500)
WAYS = [("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_MTLS", "SCRAM-SHA-256"), ("MTLS", "")]


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"orders": 1}, security=SECURITY) as running:
        yield running


def producer_of(options: dict[str, object], **more: object) -> BlockingProducer:
    rest = options | more
    return BlockingProducer(cast("str", rest.pop("bootstrap_servers")), **cast("ProducerOptions", rest))


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_records_are_delivered(cluster: ThreadedFakeCluster, way: tuple[str, str]) -> None:
    with producer_of(cluster.client_options(*way)) as producer:
        for number in range(50):
            producer.enqueue("orders", str(number).encode())
        producer.flush()

    assert [record.value for record in cluster.records("orders", 0)] == [str(number).encode() for number in range(50)]


@pytest.mark.kafka
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_records_and_transactions_are_delivered_to_kafka(secured_kafka: KafkaCluster, way: tuple[str, str]) -> None:
    options = secured_kafka.client_options(*way)
    with producer_of(options) as producer:
        assert producer.send("blocking", b"x").offset >= 0
    with producer_of(options, transactional_id="-".join(way)) as producer, producer.transaction() as transaction:
        transaction.send("blocking", b"y")


def test_wrong_password_is_the_error_of_the_start(cluster: ThreadedFakeCluster) -> None:
    producer = producer_of(cluster.client_options("SASL_SSL", "PLAIN"), sasl_password="canary-wrong")
    with pytest.raises(CredentialsError, match="'alice'"), producer:
        pass


@pytest.mark.slow
def test_sessions_that_end_cost_no_connection(cluster: ThreadedFakeCluster) -> None:
    with producer_of(cluster.client_options("SASL_SSL", "SCRAM-SHA-512")) as producer:
        producer.send("orders", b"first")
        before = producer.statistics()
        for _ in range(40):
            producer.send("orders", b"x")
            time.sleep(0.1)
        after = producer.statistics()

    assert after.connections_created == before.connections_created
    assert after.reauthentications >= 2


@pytest.mark.timing
def test_fork_leaves_the_parents_connection_alone(cluster: ThreadedFakeCluster) -> None:
    """T20: what the child does, and its end, sends nothing over TLS."""
    with producer_of(cluster.client_options("SASL_SSL", "SCRAM-SHA-512")) as producer:
        producer.send("orders", b"before")
        requests, connections = len(cluster.requests), cluster.connections
        child = os.fork()
        if child == 0:  # pragma: no cover  # counted in the parent
            code = 1
            try:
                producer.send("orders", b"child")
            except IllegalStateError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("orders", b"after")
        assert (len(cluster.requests), cluster.connections) == (requests + 1, connections)

    assert [record.value for record in cluster.records("orders", 0)] == [b"before", b"after"]
