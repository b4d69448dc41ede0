"""The native append writes what the slow encoder writes, byte for byte."""

import asyncio
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._accumulator.record_batch_header import BatchIdentity, BatchTimes, encode_header
from aioproducer._native.append import OpenPartition, RecordAppender, RecordBatchBuilder, TopicInfo
from aioproducer._native.delivery import BatchResult
from aioproducer._native.memory import Chunk
from aioproducer.errors import RecordTooLargeError
from aioproducer.records import TopicPartition
from tests.reference import murmur2
from tests.reference.record_batch import Batch, Record, encode_batch, encode_records

CAPACITY = 64 * 1024
PARTITIONS = 7

NULLABLE = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        timestamp=st.integers(0, 2**63 - 1) | st.integers(10**12, 10**12 + 1000),
        headers=st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


class OneChunkEach:
    """Gives every partition one large chunk, and keyless records partition 0."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def make_room(self, slot: OpenPartition, size: int) -> bool:
        assert slot.builder is None
        assert size <= CAPACITY
        result = BatchResult(self._loop, TopicPartition("t", slot.partition))
        slot.builder = RecordBatchBuilder(Chunk(CAPACITY), result, CAPACITY)
        return True

    def batch_full(self, slot: OpenPartition) -> None:
        pytest.fail(f"full: {slot}")

    def choose_partition(self, topic: TopicInfo) -> int:
        assert topic.topic == "t"
        return 0

    def unknown_partition(self, topic: TopicInfo, partition: int) -> NoReturn:
        pytest.fail(f"no partition {partition} of {topic}")

    def too_large(self, topic: str, size: int) -> RecordTooLargeError:
        pytest.fail(f"too large for {topic}: {size}")


def refuse() -> NoReturn:
    pytest.fail("not reached")


def append_all(records: list[Record], partition: int | None) -> list[RecordBatchBuilder | None]:
    accumulator = OneChunkEach()
    appender = RecordAppender(accumulator, refuse=refuse, batch_size=CAPACITY, max_record_size=CAPACITY)
    topic = TopicInfo("t")
    topic.slots.extend(OpenPartition(number, None) for number in range(PARTITIONS))
    appender.topics["t"] = topic
    appender.open()
    for each in records:
        appender.append("t", each.value, each.key, partition, each.timestamp, each.headers, None)
    accumulator.close()
    return [slot.builder for slot in topic.slots]


def body_of(builder: RecordBatchBuilder) -> bytes:
    return bytes(memoryview(builder.chunk)[: builder.size])


@given(RECORDS)
def test_records_section_equals_the_references(records: list[Record]) -> None:
    builder = append_all(records, partition=3)[3]

    assert builder is not None
    assert body_of(builder) == encode_records(records)
    assert builder.count == len(records)
    assert builder.base_timestamp == records[0].timestamp
    assert builder.max_timestamp == max(record.timestamp for record in records)


@given(
    RECORDS,
    st.builds(BatchIdentity, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
@settings(max_examples=50)
def test_whole_batch_equals_the_references(records: list[Record], identity: BatchIdentity) -> None:
    builder = append_all(records, partition=0)[0]
    assert builder is not None
    body = body_of(builder)
    times = BatchTimes(builder.base_timestamp, builder.max_timestamp)

    header = encode_header(body, builder.count, times=times, identity=identity, compression=0)

    batch = Batch(
        tuple(records),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.base_sequence,
        transactional=identity.is_transactional,
    )
    assert header + body == encode_batch(batch)


@given(st.binary(max_size=50))
def test_key_goes_where_java_sends_it(key: bytes) -> None:
    """Consumers that join topics by key find equal keys in equal partitions."""
    builders = append_all([Record(key, b"", 0)], partition=None)

    assert [number for number, builder in enumerate(builders) if builder is not None] == [
        murmur2.partition_for_key(key, PARTITIONS)
    ]


@pytest.mark.parametrize("count", [1, 2, 100])
def test_keyless_records_share_a_batch(count: int) -> None:
    builders = append_all([Record(None, b"v", 0)] * count, partition=None)

    assert [builder.count if builder else 0 for builder in builders] == [count, 0, 0, 0, 0, 0, 0]
