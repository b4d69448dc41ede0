"""The native append writes what the slow encoder writes, also where user code sends in the middle of it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._accumulator.producer_identity import BatchIdentity
from aioproducer._native.append import OpenPartition, RecordAppender, RecordBatchBuilder, TopicInfo
from aioproducer._native.delivery import BatchResult, Delivery
from aioproducer._native.memory import Chunk
from aioproducer._native.produce import encode_header
from aioproducer.errors import RecordTooLargeError
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts
from tests.native.prepared_batches import reference_batch
from tests.reference import murmur2
from tests.reference.record_batch import Record, encode_batch, encode_records

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

    def make_room(self, partition: OpenPartition, size: int) -> bool:
        assert partition.open_batch is None
        assert size <= CAPACITY
        result = BatchResult(self._loop, TopicPartition("t", partition.number))
        partition.open_batch = RecordBatchBuilder(Chunk(CAPACITY), result, CAPACITY)
        return True

    def batch_full(self, partition: OpenPartition) -> None:
        pytest.fail(f"full: {partition}")

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
    topic.partitions.extend(OpenPartition(number) for number in range(PARTITIONS))
    appender.topics["t"] = topic
    appender.open()
    for each in records:
        appender.append("t", each.value, each.key, partition, each.timestamp, each.headers, None)
    accumulator.close()
    return [each.open_batch for each in topic.partitions]


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

    builder.identity = identity
    header = encode_header(builder)

    assert header + body == encode_batch(reference_batch(records, identity))


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


# Records sent in the middle of an append


class SendsInside:
    """Sends to the same partition, with headers, at each look at the clock: in the middle of opening a batch."""

    def __init__(self, core: CoreParts) -> None:
        self.core = core
        self.sent: list[Delivery] = []
        self.left = 1

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            headers = [("inner", b"i" * 50)]
            delivery = self.core.appender.append("t", b"inner", None, 0, None, headers, None)
            assert delivery is None
            record = self.core.wait_in_queue(b"inner")
            self.sent.append(record.delivery)


def records_of(core: CoreParts) -> Iterator[bytes]:
    for batch in core.drain():
        yield bytes(batch.records())


def test_record_sent_inside_an_append_waits() -> None:
    """The outer record keeps its room, its headers and its batch."""
    core = CoreParts()
    inside = SendsInside(core)
    core.on_clock = inside
    outer = core.appender.append("t", b"outer", None, 0, None, [("outer", b"o" * 50)], None)
    core.on_clock = lambda: None
    assert outer is not None
    core.wait_queues.serve()
    core.flush()

    [records] = records_of(core)
    assert records.count(b"outer") == 2
    assert b"o" * 50 in records
    assert records.count(b"inner") == len(inside.sent) == 1
    assert {delivery._batch_result for delivery in inside.sent} == {outer._batch_result}


class SendsWhenRead(bytearray):
    """A header's value that sends when its bytes are read, as a finalizer may at any allocation."""

    def __init__(self, inside: Callable[[], None]) -> None:
        super().__init__(b"not yet")
        self.inside = inside

    def __bytes__(self) -> bytes:
        self.inside()
        return bytes(50)


def test_record_sent_while_headers_are_read_waits() -> None:
    core = CoreParts()
    inside = SendsInside(core)
    headers = [("first", b"f" * 50), ("reads", SendsWhenRead(inside)), ("last", b"l" * 50)]
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is None  # behind the inner one
    _, _, _, size = core.appender.measure("t", b"outer", None, 0, None, headers)
    core.wait_queues.serve()
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    written = b"".join((b"\x06", b"\x0afirst\x64", b"f" * 50, b"\x0areads\x64", bytes(50), b"\x08last\x64", b"l" * 50))
    assert records.count(b"inner") == len(inside.sent) == 1
    assert written in records
    assert size >= len(written)


def test_second_record_sent_while_headers_are_read_waits() -> None:
    """The first one was measured, as waiting records are; the outer append goes on."""
    core = CoreParts(leaders=(1, 1))
    answers: list[Delivery | None] = []

    def send() -> None:
        inner = [("inner", b"i" * 70)]
        answers.append(core.appender.append("t", b"inner", None, 1, None, inner, None))
        core.appender.measure("t", b"inner", None, 1, None, inner)

    headers = [("first", b"f" * 50), ("one", SendsWhenRead(send)), ("two", SendsWhenRead(send))]
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    assert set(answers) == {None}
    assert b"".join((b"\x06", b"\x0afirst\x64", b"f" * 50, b"\x06one\x64", bytes(50), b"\x06two\x64")) in records


def test_record_sent_while_another_is_measured_leaves_its_size() -> None:
    core = CoreParts()
    headers = [("first", b"f"), ("reads", SendsWhenRead(SendsInside(core)))]
    _, _, _, size = core.appender.measure("t", b"outer", None, 0, None, headers)

    assert core.appender.measure("t", b"outer", None, 0, None, headers)[3] == size
    assert core.wait_queues.records == 1


def test_headers_changed_while_read_are_those_of_the_call() -> None:
    core = CoreParts()
    inside = SendsInside(core)
    inside.left = 0
    headers: list[tuple[str, bytes]] = []

    class Appends(bytearray):
        def __bytes__(self) -> bytes:
            headers.append(("more", b"m"))
            return b"v"

    headers.append(("one", Appends()))
    assert core.appender.append("t", b"outer", None, 0, None, headers, None) is not None
    core.flush()

    [records] = records_of(core)
    assert records.endswith(b"\x02\x06one\x02v")


def test_queue_is_empty_afterwards() -> None:
    core = CoreParts()
    core.on_clock = SendsInside(core)
    core.appender.append("t", b"outer", None, 0, None, None, None)
    core.on_clock = lambda: None
    core.wait_queues.serve()
    place = core.partition()

    assert isinstance(place, OpenPartition)
    assert place.waiting_count == 0
    assert core.appender.append("t", b"next", None, 0, None, None, None) is not None


def test_unplaceable_record_leaves_its_queue_unchanged() -> None:
    core = CoreParts()
    core.wait_in_queue(b"first")
    place = core.partition()
    waiting_count = place.waiting_count

    def fails() -> None:
        raise MemoryError

    core.on_clock = fails
    with pytest.raises(MemoryError):
        core.appender.append_waiting("t", b"first", None, 0, 0, None)
    core.on_clock = lambda: None

    assert place.waiting_count == waiting_count == 1
    assert core.appender.append("t", b"later", None, 0, None, None, None) is None


def test_record_queued_while_the_first_is_placed_is_counted() -> None:
    """Else the queue of its partition would look empty while a record waits, and never be empty afterwards."""
    core = CoreParts()
    core.wait_in_queue(b"first")
    inside = SendsInside(core)
    core.on_clock = inside
    core.wait_queues.serve()
    core.on_clock = lambda: None
    core.wait_queues.serve()

    assert len(inside.sent) == 1
    assert (core.wait_queues.records, core.partition().waiting_count) == (0, 0)
    assert core.appender.append("t", b"next", None, 0, None, None, None) is not None


# Keys that are ignored: such a record may go to any partition, like one without a key


def test_keyed_record_does_not_overtake_keyless_waiters() -> None:
    core = CoreParts(ignore_keys=True)
    core.wait_in_queue(b"first", partition=None)

    assert core.appender.append("t", b"later", b"key", None, None, None, None) is None


def test_keyed_record_that_waited_may_go_to_any_partition() -> None:
    core = CoreParts(leaders=(1, 1, 1), ignore_keys=True)

    assert core.appender.partition_of("t", b"key", None) is None


def test_wall_clock_counts_milliseconds() -> None:
    """Consumers search, and brokers delete, by it; within a second it must not run slower."""
    core = CoreParts()
    refuse = core.events.raise_not_accepting
    appender = RecordAppender(core.open_batches, refuse=refuse, batch_size=16_384, max_record_size=100_000)
    seen: set[int] = set()

    while len(seen) < 3:
        before = time.time_ns() // 1_000_000
        seen.add(now := appender.wall_clock_ms())
        assert before <= now <= time.time_ns() // 1_000_000
