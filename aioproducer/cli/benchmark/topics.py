"""Topics of the runs, made, counted and deleted with aiokafka: the judge of what a client says was acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

VISIBLE_POLL_S = 0.05
"""How often it is asked whether a new topic has all its leaders."""

VISIBLE_TIMEOUT_S = 30.0


@asynccontextmanager
async def fresh_topic(bootstrap_servers: str, name: str, partitions: int) -> AsyncIterator[None]:
    """A topic that exists, with a leader for each partition, within the block and not after it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(name, partitions, 1)])
        await _wait_until_led(admin, name, partitions)
        await records_in(bootstrap_servers, name, partitions)  # the leader may be named before it knows that it leads
        yield
        await admin.delete_topics([name])
    finally:
        await admin.close()


async def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """How many records a fresh topic has now: the sum of its end offsets."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    try:
        await consumer.start()
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
    finally:
        await consumer.stop()
    return sum(ends.values())


async def _wait_until_led(admin: AIOKafkaAdminClient, name: str, partitions: int) -> None:
    """Return once every partition has a leader."""
    async with asyncio.timeout(VISIBLE_TIMEOUT_S):
        while await _led_partitions(admin, name) < partitions:  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(VISIBLE_POLL_S)


async def _led_partitions(admin: AIOKafkaAdminClient, name: str) -> int:
    (topic,) = await admin.describe_topics([name])
    return sum(partition["error_code"] == 0 for partition in topic["partitions"])
