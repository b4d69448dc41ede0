"""Topics made on first use, and offsets by time: the embedded cluster and real Kafka answer alike."""

import asyncio

from tests.contracts.odd_batches import odd_batch
from tests.contracts.raw_client import RawClient


async def test_topic_is_made_on_first_use(client: RawClient, topic: str) -> None:
    first = await client.topic_error(topic, auto_create=True)
    async with asyncio.timeout(10):
        while await client.topic_error(topic, auto_create=True) != 0:  # noqa: ASYNC110 - asks a broker
            await asyncio.sleep(0.05)

    assert first == 3


async def test_offsets_by_time(client: RawClient, topic: str) -> None:
    await client.create_topic(topic, {"retention.ms": "-1"})  # records of 1970 are gone at the broker's next look else
    for number in range(3):
        await client.produce(topic, odd_batch(timestamp=1_000_000 + 1000 * number))

    found = [(await client.offset(topic, time))[0] for time in (-2, -1, 1_000_500, 9_000_000)]

    assert found == [0, 6, 2, -1]
