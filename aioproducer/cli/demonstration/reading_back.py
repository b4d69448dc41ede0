"""Reads every record of a topic with aiokafka's consumer: somebody else's code, that owes ours nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from aioproducer.cli.demonstration.records import ReadRecord

STALL_S = 20.0
"""How long no record may come before reading is given up; what was not read then counts as missing."""

_POLL_MS = 200
_MAX_RECORDS = 5_000
_PARTITION_FETCH_BYTES = 4 * 1024 * 1024


async def read_all(bootstrap_servers: str, topic: str, partitions: int) -> AsyncIterator[Sequence[ReadRecord]]:
    """Read from the beginning to what is the end at the time of the call.

    Yields:
        Records of one partition, in the order of its log.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
        metadata_max_age_ms=1_000,
    )
    await consumer.start()
    try:
        async for records in _read_to_the_end(
            consumer, [TopicPartition(topic, number) for number in range(partitions)]
        ):
            yield records
    finally:
        await consumer.stop()


async def _read_to_the_end(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> AsyncIterator[Sequence[ReadRecord]]:
    """Poll until every partition has been read up to its end; gives up when nothing comes for `STALL_S`."""
    consumer.assign(partitions)
    ends = await consumer.end_offsets(partitions)
    clock = asyncio.get_running_loop().time
    last_came_at = clock()
    left = {partition for partition in partitions if ends[partition] > 0}
    while left and clock() - last_came_at < STALL_S:
        fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
        for partition, records in fetched.items():
            last_came_at = clock()
            yield [ReadRecord(record.partition, record.key, record.value, record.headers) for record in records]
            if records[-1].offset + 1 >= ends[partition]:
                left.discard(partition)
