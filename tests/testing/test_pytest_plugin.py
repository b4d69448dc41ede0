"""The fixture that users get."""

from aioproducer.testing import FakeCluster


async def test_cluster_runs_three_brokers(cluster: FakeCluster) -> None:
    """On addresses of their own."""
    addresses = cluster.bootstrap_servers.split(",")

    assert len(set(addresses)) == 3
