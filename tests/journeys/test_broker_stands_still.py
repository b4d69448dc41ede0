"""A broker that keeps its connection and answers nothing does not hold up what others can do."""

import asyncio

from aioproducer import Producer
from aioproducer.testing import FakeCluster, Where
from tests.fakes.virtual_cluster import in_virtual_time


@in_virtual_time
async def test_topic_is_asked_of_another_broker() -> None:
    """The stopped broker is the only connected one; Kafka's producer waits `request.timeout.ms` for it."""
    async with FakeCluster(3, topics={"orders": 1}) as cluster:
        first = cluster.bootstrap_servers.split(",")[0]
        async with Producer(first, linger_ms=0) as producer:
            stall = cluster.faults.stall(Where(node_id=1))
            began = asyncio.get_running_loop().time()
            await producer.partitions_for("orders")

            assert asyncio.get_running_loop().time() - began < 5
            cluster.faults.remove(stall)


@in_virtual_time
async def test_bootstrap_address_is_asked_without_other_nodes() -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster, FakeCluster(1, topics={"orders": 1}) as elsewhere:
        servers = f"{cluster.bootstrap_servers},{elsewhere.bootstrap_servers}"
        async with Producer(servers, linger_ms=0) as producer:
            await producer.partitions_for("orders")
            first, second = (cluster, elsewhere) if cluster.connections else (elsewhere, cluster)
            stall = first.faults.stall(Where())
            second.create_topic("new", 2)
            began = asyncio.get_running_loop().time()

            assert await producer.partitions_for("new") == [0, 1]
            assert asyncio.get_running_loop().time() - began < 5
            first.faults.remove(stall)
