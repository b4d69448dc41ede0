"""Metrics of nodes, on a cluster in virtual time."""

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.virtual_loop import in_virtual_time


def of_node(producer: Producer, name: str, node: str) -> float:
    (found,) = [
        metric.value
        for metric in producer.metrics()
        if (metric.group, metric.name, metric.tags.get("node-id")) == ("producer-node-metrics", name, node)
    ]
    assert isinstance(found, int | float)
    return found


@in_virtual_time
async def test_latency_of_a_node_counts_each_answer_once() -> None:
    async with (
        FakeCluster(1, topics={"orders": 1}, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await producer.send("orders", b"v")
        answers = of_node(producer, "response-total", "node-1")
        cluster.faults.delay(2.0, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"v")
        answers_after = of_node(producer, "response-total", "node-1")
        average_ms = of_node(producer, "request-latency-avg", "node-1")  # of Produce alone, as Kafka's

    assert answers_after == answers + 1
    assert average_ms == pytest.approx(2_000 / 2, abs=10)
