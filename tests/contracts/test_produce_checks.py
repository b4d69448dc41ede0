"""A batch that is wrong in one way gets the same error from the embedded cluster and from real Kafka."""

import struct

import pytest

from tests.contracts.odd_batches import HOUR_MS, NOW_MS, odd_batch, record
from tests.contracts.raw_client import RawClient

GOOD = odd_batch()
CLAIMS_FIVE_BYTES = GOOD[:8] + struct.pack(">i", 5) + GOOD[12:]
PLAIN: dict[str, str] = {}
COMPACTED = {"cleanup.policy": "compact"}
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
SMALL_MESSAGES = {"max.message.bytes": "2000"}
SMALL_SEGMENTS = {"segment.bytes": "1048576", "max.message.bytes": "3000000"}
NO_FUTURE = {"message.timestamp.after.max.ms": "3600000"}  # the default since 4.0
NO_OLD_TIMES = {"message.timestamp.before.max.ms": "1000"}
LARGE = record(0, value=b"x" * 1_500_000)
UNPACKED = {"compression.type": "uncompressed", **SMALL_MESSAGES}
PACKED_ANEW = {"compression.type": "zstd"}
WIDE = record(0, value=b"x" * 5_000)

CASES: dict[str, tuple[dict[str, str], bytes, int]] = {
    "right": (PLAIN, GOOD, 0),
    "nothing": (PLAIN, b"", 87),
    "cut in the header": (PLAIN, GOOD[:40], 87),
    "cut in the records": (PLAIN, GOOD[:-3], 87),
    "claims five bytes": (PLAIN, CLAIMS_FIVE_BYTES, 2),
    "two batches": (PLAIN, GOOD + GOOD, 87),
    "a rest too short for a batch": (PLAIN, GOOD + b"x" * 10, 0),
    "the second batch cut": (PLAIN, GOOD + GOOD[:30], 0),
    "base offset not 0": (PLAIN, odd_batch(base_offset=5), 87),
    "magic 0": (PLAIN, odd_batch(magic=0), 87),
    "magic 1": (PLAIN, odd_batch(magic=1), 87),
    "magic 3": (PLAIN, odd_batch(magic=3), 2),
    "wrong checksum": (PLAIN, odd_batch(crc=1), 2),
    "unknown codec": (PLAIN, odd_batch(attributes=5), -1),
    "too large": (PLAIN, odd_batch([LARGE]), 10),
    "too large and wrong checksum": (PLAIN, odd_batch([LARGE], crc=1), 10),
    "too large once it is unpacked for the topic": (UNPACKED, odd_batch([WIDE], codec=1), 10),
    "too large before it is packed for the topic": ({**PACKED_ANEW, **SMALL_MESSAGES}, odd_batch([WIDE]), 10),
    "unpacked for the topic": (UNPACKED, odd_batch(codec=3), 0),
    "packed for the topic": (PACKED_ANEW, GOOD, 0),
    "repacked for the topic": (PACKED_ANEW, odd_batch(codec=1), 0),
    "larger than a segment": (SMALL_SEGMENTS, odd_batch([LARGE]), 18),
    "claims one record more": (PLAIN, odd_batch(count=3), 87),
    "claims one record less": (PLAIN, odd_batch(count=1), 87),
    "claims no record": (PLAIN, odd_batch(count=0), 87),
    "last delta wrong": (PLAIN, odd_batch(last_delta=5), 87),
    "control batch": (PLAIN, odd_batch(attributes=0x20), 87),
    "transactional without an id": (PLAIN, odd_batch(attributes=0x10), 53),
    "producer id without sequence": (PLAIN, odd_batch(producer_id=7, epoch=0), 87),
    "sequence without producer id": (PLAIN, odd_batch(sequence=4), 0),
    "record claims more": (PLAIN, odd_batch([record(0), record(1, claims=1)]), 87),
    "record claims less": (PLAIN, odd_batch([record(0), record(1, claims=-1)]), 87),
    "record with a rest": (PLAIN, odd_batch([record(0), record(1, trailing=b"zz")]), 87),
    "bytes after the records": (PLAIN, odd_batch([record(0), record(1), b"xx"], count=2), 87),
    "time 2 hours ahead": (NO_FUTURE, odd_batch(timestamp=NOW_MS + 2 * HOUR_MS), 32),
    "time long ago": (PLAIN, odd_batch(timestamp=1000), 0),
    "time too old for the topic": (NO_OLD_TIMES, odd_batch(timestamp=NOW_MS - HOUR_MS), 32),
    "no time": (PLAIN, odd_batch(timestamp=-1), 0),
    "time ahead, broker keeps its own": (BROKER_TIME, odd_batch(timestamp=NOW_MS + 2 * HOUR_MS), 0),
    "says that the time is the broker's": (PLAIN, odd_batch(attributes=0x08), 0),
    "says so where it is": (BROKER_TIME, odd_batch(attributes=0x08), 32),
    "no key in a compacted topic": (COMPACTED, odd_batch([record(0), record(1, key=None)]), 87),
}


@pytest.mark.parametrize("name", CASES)
async def test_batch_is_answered_as_kafka_does(client: RawClient, topic: str, name: str) -> None:
    """The error code, -1 for the offset of what was not taken, and the end of the log."""
    configs, records, error = CASES[name]
    await client.create_topic(topic, configs)

    answer = await client.produce(topic, records)
    end, _ = await client.offset(topic, -1)

    assert (answer.error_code, answer.base_offset, end) == (error, -1 if error else 0, 0 if error else 2)


async def test_records_at_fault_are_named(client: RawClient, topic: str) -> None:
    """The response has their index in the batch (KIP-467)."""
    await client.create_topic(topic, NO_FUTURE)
    late = record(1, time_delta=2 * HOUR_MS)

    answer = await client.produce(topic, odd_batch([record(0), late, record(2)]))

    assert (answer.error_code, answer.record_errors) == (32, (1,))


@pytest.mark.parametrize("acks, error", [(5, 21), (1, 0), (-1, 0)])
async def test_acks(client: RawClient, topic: str, *, acks: int, error: int) -> None:
    await client.create_topic(topic)

    assert (await client.produce(topic, GOOD, acks=acks)).error_code == error


async def test_unknown_topic_comes_before_unknown_acks(client: RawClient, topic: str) -> None:
    unknown = await client.produce(topic + "-none", GOOD, acks=5)
    await client.create_topic(topic)

    no_partition = await client.produce(topic, GOOD, partition=9)

    assert (unknown.error_code, no_partition.error_code) == (3, 3)


@pytest.mark.parametrize("version, error", [(3, 76), (6, 76), (7, 0)])
async def test_zstd_needs_version_7(client: RawClient, topic: str, *, version: int, error: int) -> None:
    """Earlier versions get UNSUPPORTED_COMPRESSION_TYPE."""
    await client.create_topic(topic)

    assert (await client.produce(topic, odd_batch(codec=4), version=version)).error_code == error
