"""The embedded cluster and real Kafka answer the requests of a readiness check alike."""

from aioproducer.testing.kafka.readiness import ClusterView, ask_for_cluster


async def test_single_broker_names_itself_as_controller(broker: str) -> None:
    """ApiVersions 0 and Metadata 1 are the oldest versions that all releases serve."""
    host, _, port = broker.partition(":")

    assert await ask_for_cluster(host, int(port)) == ClusterView(brokers=1, controller_id=1)
