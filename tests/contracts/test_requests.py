"""Requests about topics, offsets and records: the embedded cluster and real Kafka answer alike, errors too."""

import asyncio
import struct
from collections.abc import Callable, Sequence

import pytest

from aioproducer.testing.kafka.broker_requests import ClusterView, ask_for_cluster
from tests.contracts.clients import HOUR_MS, NOW_MS, RawClient, odd_batch, record


async def test_single_broker_names_itself_as_controller(broker: str) -> None:
    """ApiVersions 0 and Metadata 1 are the oldest versions that all releases serve."""
    host, _, port = broker.partition(":")

    assert await ask_for_cluster(host, int(port)) == ClusterView(brokers=1, controller_id=1)


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


# A batch that is wrong in one way


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


# Producer ids, epochs and sequences


GAP, OLD_EPOCH, NEXT = 45, 47, 0
LAST = 2**31 - 1

Step = tuple[int, int, int]  # epoch, sequence of the first of two records, error

STORIES: dict[str, Sequence[Step]] = {
    "in order": [(0, 0, NEXT), (0, 2, NEXT), (0, 4, NEXT)],
    "a gap": [(0, 0, NEXT), (0, 3, GAP), (0, 2, NEXT)],
    "a higher epoch begins at zero": [(0, 0, NEXT), (1, 2, GAP), (1, 0, NEXT), (0, 2, OLD_EPOCH)],
    "epochs may be left out": [(0, 0, NEXT), (5, 0, NEXT)],
    "an unknown producer begins anywhere": [(0, 70, NEXT), (0, 72, NEXT)],
    "sequences go round": [(0, LAST - 1, NEXT), (0, 0, NEXT)],
    "after no epoch any sequence goes": [(-1, 0, NEXT), (-1, 7, NEXT), (3, 5, NEXT), (3, 5 + 4, GAP)],
    "a batch may reach over the end": [(0, LAST, NEXT), (0, 1, NEXT)],
}


@pytest.mark.parametrize("story", STORIES)
async def test_sequence_story(client: RawClient, topic: str, story: str) -> None:
    await client.create_topic(topic)
    producer_id = await client.new_producer_id()
    errors = []
    for epoch, sequence, _ in STORIES[story]:
        answer = await client.produce(topic, odd_batch(producer_id=producer_id, epoch=epoch, sequence=sequence))
        errors.append(answer.error_code)
    end, _ = await client.offset(topic, -1)

    assert errors == [error for _, _, error in STORIES[story]]
    assert end == 2 * errors.count(0)


@pytest.mark.parametrize("batches_back, answer", [(0, (0, 12)), (4, (0, 4)), (5, (45, -1)), (6, (45, -1))])
async def test_duplicate(client: RawClient, topic: str, *, batches_back: int, answer: tuple[int, int]) -> None:
    await client.create_topic(topic)
    producer_id = await client.new_producer_id()
    batch: Callable[[int], bytes] = lambda sequence: odd_batch(producer_id=producer_id, epoch=0, sequence=sequence)  # noqa: E731
    for sequence in range(0, 14, 2):
        await client.produce(topic, batch(sequence))

    again = await client.produce(topic, batch(12 - 2 * batches_back))

    assert again[:2] == answer


@pytest.mark.parametrize("keeps", ["CreateTime", "LogAppendTime"])
async def test_copy_is_answered_with_the_time_of_what_is_there(client: RawClient, topic: str, keeps: str) -> None:
    """A duplicate gets the time of the original; a batch that another log takes at that offset gets its own."""
    await client.create_topic(topic, {"message.timestamp.type": keeps})
    batch = odd_batch(producer_id=await client.new_producer_id(), epoch=0, sequence=0)

    taken = await client.produce(topic, batch)
    copy = await client.produce(topic, batch)

    assert (copy.error_code, copy.base_offset) == (0, 0)
    if keeps == "CreateTime":
        assert (taken.log_append_time, copy.log_append_time) == (-1, NOW_MS)
    else:
        assert taken.log_append_time == copy.log_append_time > NOW_MS


async def test_size_and_time_are_checked_before_duplicates(client: RawClient, topic: str) -> None:
    """A batch that was taken once is refused when it comes again with a wrong time."""
    await client.create_topic(topic, {"message.timestamp.after.max.ms": "3600000"})
    producer_id = await client.new_producer_id()
    await client.produce(topic, odd_batch(producer_id=producer_id, epoch=0, sequence=0))

    again = await client.produce(topic, odd_batch(producer_id=producer_id, epoch=0, sequence=0, timestamp=2**42))

    assert again.error_code == 32
