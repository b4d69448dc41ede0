"""What a starter of brokers asks is answered alike by the embedded cluster and by real Kafka."""

from aioproducer.testing.kafka.readiness import ClusterView, ask_for_cluster


async def test_single_broker_names_itself_as_controller(broker: str) -> None:
    """By ApiVersions 0 and Metadata 1, the oldest that all of them speak."""
    host, _, port = broker.partition(":")

    assert await ask_for_cluster(host, int(port)) == ClusterView(brokers=1, controller_id=1)
