"""Three nodes of real Kafka in three racks: one is killed, one is frozen, or all are."""

import asyncio

import aiokafka
import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from tests.contracts.clients import read
from tests.fakes.readiness_probe import Probe

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 20_000


async def leader_of(producer: Producer, kafka: KafkaCluster, topic: str, *, partition: int = 0) -> int:
    client = aiokafka.AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    await producer.partitions_for(topic)
    await client.bootstrap()
    try:
        await client.force_metadata_update()
        client.add_topic(topic)
        while (leader := client.cluster.leader_for_partition(aiokafka.TopicPartition(topic, partition))) in {None, -1}:
            await client.force_metadata_update()
    finally:
        await client.close()
    assert leader is not None
    return int(leader)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_no_record_is_lost_doubled_or_out_of_place(three_kafka_nodes: KafkaCluster, topic: str, how: str) -> None:
    kafka = three_kafka_nodes
    async with Producer(kafka.bootstrap_servers, batch_size=2_000, request_timeout_ms=5_000) as producer:
        await producer.send(topic, b"first", partition=0)
        leader = await leader_of(producer, kafka, topic)
        for number in range(RECORDS):
            await producer.enqueue(topic, b"%d" % number, partition=0)
            if number == RECORDS // 2:
                await (kafka.kill(leader) if how == "killed" else asyncio.to_thread(kafka.pause, leader))
        await producer.flush()
        retried = producer.statistics().records_retried

    await (kafka.restart(leader) if how == "killed" else asyncio.to_thread(kafka.resume, leader))
    written = await asyncio.to_thread(read, kafka.bootstrap_servers, topic, "read_committed")
    assert written == [b"first", *(b"%d" % number for number in range(RECORDS))]
    assert retried > 0


async def leaders_chosen(kafka: KafkaCluster, topic: str, rack: str) -> set[int]:
    """The leaders of the partitions of keyless records."""
    async with Producer(kafka.bootstrap_servers, partitioner_rack_aware=True, client_rack=rack) as producer:
        partitions = set()
        for _ in range(24):  # every second one chooses
            partitions.add((await producer.send(topic, b"v")).partition)
            await asyncio.sleep(0.11)
        return {await leader_of(producer, kafka, topic, partition=partition) for partition in partitions}


async def test_keyless_records_go_to_leaders_in_the_rack(three_kafka_nodes: KafkaCluster, topic: str) -> None:
    assert await leaders_chosen(three_kafka_nodes, topic, "rack-2") == {2}
    assert len(await leaders_chosen(three_kafka_nodes, topic, "rack-4")) > 1


@pytest.mark.timing
async def test_frozen_brokers_are_not_ready(three_kafka_nodes: KafkaCluster) -> None:
    """The producer is idle: only a question of its own can show it that its brokers are silent."""
    kafka = three_kafka_nodes
    async with Producer(kafka.bootstrap_servers, request_timeout_ms=3_000, delivery_timeout_ms=60_000) as producer:
        probe = Probe(producer)
        await probe.ask_for(2)
        await asyncio.gather(*(asyncio.to_thread(kafka.pause, node_id) for node_id in kafka.node_ids))
        frozen_at = asyncio.get_running_loop().time()
        await probe.ask_for(8, every_s=0.2)
        await asyncio.gather(*(asyncio.to_thread(kafka.resume, node_id) for node_id in kafka.node_ids))
        async with asyncio.timeout(60):
            while await probe.ask() != 200:  # noqa: ASYNC110  # a probe asks again
                await asyncio.sleep(0.2)
        await probe.ask_for(5)

    (_, first), (left_at, second), (_, third) = probe.changes
    assert (first, second, third) == (200, 503, 200)
    assert left_at - frozen_at <= 3 + 1
