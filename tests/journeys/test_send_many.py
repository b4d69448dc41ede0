"""Many records in one call: their columns, positions, failures and results."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pytest

from aioproducer import (
    BlockingProducer,
    BulkResult,
    Delivery,
    JsonSerializer,
    MessageTooLargeError,
    MetadataTimeoutError,
    Outcome,
    Producer,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    TopicPartition,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import values

ItemT = TypeVar("ItemT")


class Names(StrEnum):
    ORDERS = "orders"


PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


async def test_all_are_delivered_in_order(producer: Producer, one_broker: FakeCluster) -> None:
    column = [b"%d" % number for number in range(1_000)]

    bulk = await producer.send_many("orders", column, partition=1)
    result = await bulk

    place = TopicPartition("orders", 1)
    assert result == BulkResult(1_000, {place: (0, 999, 1_000)}, {})
    assert (bulk.accepted, bulk.refused, bulk.done(), result.failed) == (1_000, {}, True, 0)
    assert values(one_broker, "orders") == column
    result.raise_for_errors()


async def test_keys_go_with_their_values(producer: Producer, one_broker: FakeCluster) -> None:
    def keys() -> Iterator[bytes]:
        yield from (b"%d" % (number % 7) for number in range(70))

    bulk = await producer.send_many("orders", (b"v%d" % number for number in range(70)), keys=keys())
    result = await bulk

    assert sum(found.records for found in result.offsets.values()) == result.delivered == 70
    for place, found in result.offsets.items():
        assert (found.first, found.last) == (0, one_broker.end_offset(*place) - 1)
    pairs = {(record.key, record.value) for number in range(3) for record in one_broker.records("orders", number)}
    assert pairs == {(b"%d" % (number % 7), b"v%d" % number) for number in range(70)}


async def test_common_parts_are_every_records(producer: Producer, one_broker: FakeCluster) -> None:
    headers = (pair for pair in [("h", b"1")])

    await (await producer.send_many("orders", [b"a", b"b"], partition=0, timestamp=5_000, headers=headers))

    found = [(record.timestamp, list(record.headers)) for record in one_broker.records("orders", 0)]
    assert found == [(5_000, [("h", b"1")])] * 2


async def test_record_that_is_refused_keeps_no_other_back(producer: Producer, one_broker: FakeCluster) -> None:
    bulk = await producer.send_many("orders", [b"a", "text", bytes(2_000_000), b"b"], partition=0)
    result = await bulk

    assert [(position, type(error)) for position, error in result.errors.items()] == [
        (1, TypeError),
        (2, RecordTooLargeError),
    ]
    assert (result.delivered, bulk.accepted) == (2, 2)
    assert values(one_broker, "orders") == [b"a", b"b"]
    with pytest.raises(UndeliveredError, match="2 records were not delivered") as caught:
        result.raise_for_errors()
    assert [type(error.__cause__ or error) for error in caught.value.exceptions] == [TypeError, RecordTooLargeError]
    await producer.flush()


async def test_failures_are_by_position_and_seen(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)

    result = await (await producer.send_many("orders", [b"a", b"b"], partition=0))

    assert (result.delivered, list(result.errors)) == (0, [0, 1])
    assert all(isinstance(error, TopicAuthorizationError) for error in result.errors.values())
    await producer.flush()


async def test_unawaited_failures_are_raised_by_flush(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    await producer.send_many("orders", [b"a", b"b"], partition=0)

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()


async def test_unretrieved_refusals_are_raised_by_flush(producer: Producer) -> None:
    await producer.send_many("orders", [b"a", "text", bytes(2_000_000), b"b"], partition=0)

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()
    await producer.flush()


async def test_retrieved_refusals_are_not_raised(producer: Producer) -> None:
    bulk = await producer.send_many("orders", [b"a", "text"], partition=0)

    assert list(bulk.refused) == [1]
    await producer.flush()


async def test_refusals_of_a_typed_topic_are_raised_too(producer: Producer) -> None:
    await producer.topic("orders", value=str).send_many(["a", 5, "b"])  # type: ignore[list-item]

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()


async def test_untried_records_are_counted(one_broker: FakeCluster) -> None:
    """Flush reports the number of records, not of errors."""
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(
        one_broker.bootstrap_servers, buffer_memory=100_000, batch_size=10_000, max_block_ms=1_000
    ) as small:
        bulk = await small.send_many("orders", [bytes(1_000)] * 500)
        one_broker.faults.remove(stall)

        with pytest.raises(UndeliveredError, match=f"{500 - bulk.accepted} records were not delivered"):
            await small.flush()


async def test_awaiting_does_not_wait_out_the_linger(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, linger_ms=60_000) as slow:
        bulk = await slow.send_many("orders", [b"v"] * 30, keys=[b"%d" % number for number in range(30)])

        result = await asyncio.wait_for(bulk, 30)

    assert (result.delivered, len(result.offsets)) == (30, 3)


async def test_no_room_in_time_refuses_the_rest(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(
        one_broker.bootstrap_servers, buffer_memory=100_000, batch_size=10_000, max_block_ms=1_000
    ) as small:
        bulk = await asyncio.wait_for(small.send_many("orders", [bytes(1_000)] * 500), 30)
        one_broker.faults.remove(stall)
        result = await bulk

    assert 0 < result.delivered < 150
    assert result.delivered + result.failed == 500
    assert list(result.errors) == list(range(result.delivered, 500))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name, item", [("keys", b"k"), ("timestamps", 7), ("record_headers", [("a", b"")])])
async def test_columns_must_be_as_long_as_values(
    producer: Producer, name: str, item: object, *, count: int, is_async: bool
) -> None:
    given = [b"a", b"b"]
    columns: dict[str, object] = {"keys": [None] * 2, "timestamps": [None] * 2} | {name: [item] * count}
    which, other = (name, "values") if count == 1 else ("values", name)
    text = f"{name} must be as many as values: there are {min(count, 2)} {which}, and more {other}"
    with pytest.raises(ValueError, match=text):
        await producer.send_many("orders", later(given) if is_async else given, **columns)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=text):
        await producer.topic("orders", value=bytes).send_many(later(given) if is_async else given, **columns)  # type: ignore[arg-type]


async def later(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    for item in items:
        await asyncio.sleep(0)
        yield item


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_typed", [False, True])
async def test_each_record_has_its_timestamp_and_headers(
    producer: Producer, one_broker: FakeCluster, *, is_async: bool, is_typed: bool
) -> None:
    pairs: list[list[tuple[str, bytes | None]] | None] = [[("a", b"1"), ("b", None)], None, []]
    topic = producer.topic("orders", value=bytes).send_many if is_typed else partial(producer.send_many, "orders")
    column = [b"0", b"1", b"2"]

    bulk = await topic(
        later(column) if is_async else column, timestamps=(7, None, 9), record_headers=iter(pairs), partition=1
    )
    result = await bulk

    assert result.delivered == 3
    records = one_broker.records("orders", 1)
    assert [record.value for record in records] == column
    assert [list(record.headers) for record in records] == [pairs[0], [], []]
    assert [records[0].timestamp, records[2].timestamp] == [7, 9]
    assert records[1].timestamp > 1_000_000_000_000


@pytest.mark.parametrize("is_async", [False, True])
async def test_part_of_a_record_that_is_invalid_is_its_own_error(
    producer: Producer, one_broker: FakeCluster, *, is_async: bool
) -> None:
    column = [b"0", b"1", b"2", b"3"]
    timestamps, headers = [1, -5, 3, 4], [None, None, {"a": b""}, [("a", 5)]]

    bulk = await producer.send_many(
        "orders",
        later(column) if is_async else column,
        timestamps=timestamps,
        record_headers=headers,  # type: ignore[arg-type]  # invalid
    )

    assert [(position, type(error)) for position, error in bulk.refused.items()] == [
        (1, ValueError),
        (2, TypeError),
        (3, TypeError),
    ]
    assert ((await bulk).delivered, values(one_broker, "orders")) == (1, [b"0"])


@pytest.mark.parametrize("one, each", [({"timestamp": 1}, "timestamps"), ({"headers": [("a", b"")]}, "record_headers")])
async def test_part_is_for_all_or_for_each(producer: Producer, one: dict[str, object], each: str) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(one))} is for all records and {each} for each"):
        await producer.send_many("orders", [b"v"], **one, **{each: [None]})  # type: ignore[arg-type]


async def test_values_are_awaited_one_by_one(producer: Producer, one_broker: FakeCluster) -> None:
    """Each is enqueued before the next is asked for: a stream never runs ahead of the cluster."""
    asked = list[int]()
    may_go_on = asyncio.Event()

    async def stream() -> AsyncIterator[bytes]:
        for number in range(3):
            asked.append(number)
            yield b"%d" % number
            await may_go_on.wait()

    sending = asyncio.create_task(producer.send_many("orders", stream(), keys=later([b"k"] * 3)))
    while not values(one_broker, "orders"):  # noqa: ASYNC110  # no event tells of it
        await asyncio.sleep(0.001)
    assert asked == [0]
    may_go_on.set()
    bulk = await sending

    assert (await bulk).delivered == 3
    assert values(one_broker, "orders") == [b"0", b"1", b"2"]


async def test_stream_waits_for_room(one_broker: FakeCluster) -> None:
    stall = one_broker.faults.stall(PRODUCE)
    asked = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal asked
        for asked in range(100):  # noqa: B007  # read outside
            yield bytes(5_000)

    async with Producer(one_broker.bootstrap_servers, buffer_memory=100_000) as producer:
        sending = asyncio.create_task(producer.send_many("orders", stream()))
        await asyncio.sleep(0.3)
        assert 0 < asked < 25
        one_broker.faults.remove(stall)
        assert (await (await sending)).delivered == 100


async def test_stream_that_fails_leaves_what_was_accepted(producer: Producer, one_broker: FakeCluster) -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b"accepted"
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError, match="the source is gone"):
        await producer.send_many("orders", stream())
    await producer.flush()

    assert values(one_broker, "orders") == [b"accepted"]


async def test_error_of_an_iterator_is_its_own(producer: Producer) -> None:
    def keys() -> Iterator[bytes]:
        yield b"k"
        raise ValueError("of the user's own iterator")

    with pytest.raises(ValueError, match="of the user's own iterator"):
        await producer.send_many("orders", [b"1", b"2"], keys=keys())


async def test_only_values_that_are_awaited_let_other_columns_be_so(producer: Producer) -> None:
    with pytest.raises(TypeError, match="keys may be an asynchronous iterable if values are one too"):
        await producer.send_many("orders", [b"v"], keys=later([b"k"]))


async def test_stream_is_not_read_on_once_nothing_more_is_taken(one_broker: FakeCluster) -> None:
    """What is left stays in the source: a queue would lose it."""
    producer = await Producer(one_broker.bootstrap_servers).start()
    given = []

    async def source() -> AsyncIterator[bytes]:
        for number in itertools.count():
            if number == 3:
                await producer.close()
            given.append(number)
            yield b"v"

    result = await (await producer.send_many("orders", source()))

    assert given == [0, 1, 2, 3]
    assert result.delivered == 3
    assert [type(error) for error in result.errors.values()] == [ProducerClosedError]


async def test_threads_send_columns_but_no_streams(one_broker: FakeCluster) -> None:
    def send() -> list[BulkResult]:
        with BlockingProducer(one_broker.bootstrap_servers) as blocking:
            orders = blocking.topic("orders", value=bytes)
            with pytest.raises(TypeError, match="which is asynchronous"):
                blocking.send_many("orders", later([b"v"]))  # type: ignore[arg-type]
            return [
                blocking.send_many("orders", iter([b"1"]), timestamps=iter([5]), record_headers=[[("a", b"")]]),
                orders.send_many([b"2"], timestamps=[6], record_headers=[None]),
            ]

    results = await asyncio.to_thread(send)

    assert [result.delivered for result in results] == [1, 1]
    records = [record for number in range(3) for record in one_broker.records("orders", number)]
    assert sorted((record.timestamp, list(record.headers)) for record in records) == [(5, [("a", b"")]), (6, [])]


async def test_unknown_topic_and_closed_raise_at_the_call(one_broker: FakeCluster) -> None:
    producer = await Producer(one_broker.bootstrap_servers, max_block_ms=1_000).start()
    with pytest.raises(MetadataTimeoutError, match="nowhere"):
        await producer.send_many("nowhere", [b"v"])
    with pytest.raises(ValueError, match="topic"):
        await producer.send_many("", [b"v"])
    await producer.close()

    with pytest.raises(ProducerClosedError):
        await producer.send_many("orders", [b"v"])


async def test_closed_halfway_says_of_each_row_that_it_is_not_written(producer: Producer) -> None:
    closing = []

    def rows() -> Iterator[bytes]:
        yield b"first"
        closing.append(asyncio.ensure_future(producer.close()))
        yield from itertools.repeat(bytes(10_000), 100)

    result = await (await producer.send_many("orders", rows(), partition=0))
    await closing[0]

    errors = [error for error in result.errors.values() if isinstance(error, ProducerClosedError)]
    assert len(errors) == result.failed > 0
    assert {error.outcome for error in errors} == {Outcome.NOT_WRITTEN}


async def test_no_values_are_no_records(producer: Producer) -> None:
    bulk = await producer.send_many("orders", [])

    assert (bulk.done(), await bulk) == (True, BulkResult(0, {}, {}))


async def test_serializers_are_called_for_each(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, value_serializer=JsonSerializer()) as typed:
        result = await (await typed.send_many("orders", [{"a": 1}, {1, 2}, None], partition=0))

    assert [type(error) for error in result.errors.values()] == [SerializationError]
    assert values(one_broker, "orders") == [b'{"a":1}', None]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, itertools.repeat(b"k")], ids=["values", "values and keys"])
async def test_closed_during_rows_without_end_lets_the_loop_run(
    one_broker: FakeCluster, keys: Iterator[bytes] | None
) -> None:
    producer = Producer(one_broker.bootstrap_servers)
    await producer.start()
    giving = asyncio.create_task(producer.send_many("orders", itertools.repeat(b"x"), keys=keys))
    while not producer.statistics().records_acknowledged:  # noqa: ASYNC110  # it has no event
        await asyncio.sleep(0.01)

    await producer.close(1)
    await asyncio.sleep(0.05)
    assert not giving.done()
    giving.cancel()
    await asyncio.wait([giving])

    assert giving.cancelled()


async def test_rows_that_are_all_refused_let_the_loop_run(producer: Producer) -> None:
    giving = asyncio.create_task(producer.send_many("orders", ["no bytes"] * 3_000))
    turns = 0
    while not giving.done():
        await asyncio.sleep(0)
        turns += 1

    assert len((await giving).refused) == 3_000
    assert turns > 10


async def test_batches_that_are_split_are_reckoned_by_their_parts() -> None:
    column = [b"%d" % number * 100 for number in range(100, 160)]
    async with FakeCluster(nodes=1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 1, configs={"max.message.bytes": "2000"})
        async with Producer(cluster.bootstrap_servers) as producer:
            result = await (await producer.send_many("orders", [*column, bytes(5_000), b"last"]))
            assert producer.statistics().batches_split > 0

        assert values(cluster, "orders") == [*column, b"last"]
    assert result.offsets == {TopicPartition("orders", 0): (0, 60, 61)}
    assert [(position, type(error)) for position, error in result.errors.items()] == [(60, MessageTooLargeError)]


async def test_records_of_others_may_lie_between(producer: Producer, one_broker: FakeCluster) -> None:
    columns = [[b"%d-%d" % (call, number) for number in range(5_000)] for call in range(2)]

    bulks = await asyncio.gather(*(producer.send_many("orders", column, partition=2) for column in columns))
    results = [await bulk for bulk in bulks]

    place = TopicPartition("orders", 2)
    assert [result.offsets[place].records for result in results] == [5_000, 5_000]
    found = values(one_broker, "orders")
    for call, (column, result) in enumerate(zip(columns, results, strict=True)):
        first, last, _ = result.offsets[place]
        assert (found[first], found[last]) == (column[0], column[-1])
        assert [value for value in found if value is not None and value.startswith(b"%d-" % call)] == column


async def test_topic_may_be_a_member_of_an_enumeration(producer: Producer, one_broker: FakeCluster) -> None:
    result = await (await producer.send_many(Names.ORDERS, [b"a"], partition=0))

    assert (result.delivered, values(one_broker, "orders")) == (1, [b"a"])


class Counting(Producer):
    def __init__(self, servers: str, **options: object) -> None:
        super().__init__(servers, **options)  # type: ignore[arg-type]  # of the test's own
        self.seen: list[object] = []

    async def enqueue(self, topic: str, value: object = None, **parts: object) -> Delivery:
        self.seen.append(value)
        parts["headers"] = [("seen", b"1")]
        return await super().enqueue(topic, value, **parts)  # type: ignore[arg-type]  # as given


async def test_subclass_that_overrides_enqueue_is_asked_for_each(one_broker: FakeCluster) -> None:
    """`send_and_wait` calls `enqueue`, too; the native path would bypass the override."""
    async with Counting(one_broker.bootstrap_servers) as producer:
        many = await (await producer.send_many("orders", [b"1", b"2"], partition=0))
        table = await (await producer.send_arrow("orders", pa.table({"value": [b"3"], "partition": [0]})))

    assert (many.delivered, table.delivered, producer.seen) == (2, 1, [b"1", b"2", b"3"])
    assert [tuple(record.headers) for record in one_broker.records("orders", 0)] == [(("seen", b"1"),)] * 3


async def test_rows_of_a_table_never_meet_serializers_in_a_subclass(one_broker: FakeCluster) -> None:
    """The subclass's `enqueue` is not called: it would serialize the bytes again."""
    async with Counting(one_broker.bootstrap_servers, value_serializer=str.encode) as producer:
        await producer.send_many("orders", ["text"], partition=0)
        await producer.send_arrow("orders", pa.table({"value": [b"bytes"], "partition": [0]}))

    assert producer.seen == ["text"]
    assert values(one_broker, "orders") == [b"text", b"bytes"]


# What `send_many` takes as values and keys, and what it refuses at the call


@pytest.mark.parametrize("column", ["values", b"keys", None, 5], ids=str)
@pytest.mark.parametrize("name", ["values", "keys", "timestamps", "record_headers"])
async def test_invalid_column_is_refused_at_the_call(producer: Producer, name: str, column: object) -> None:
    """Else a str would be a column of letters, each of them refused."""
    if name != "values" and column is None:
        return
    columns: dict[str, object] = {"values": [b"v"], name: column}
    with pytest.raises(TypeError, match=f"{name} must be an iterable of {name}, one for each record, got"):
        await producer.send_many("orders", **columns)  # type: ignore[arg-type]

    await producer.flush()


@pytest.mark.parametrize("column", [{b"a": 1}, {}, {b"a"}, frozenset()], ids=str)
@pytest.mark.parametrize("name", ["values", "keys"])
async def test_mapping_or_set_is_no_column(one_broker: FakeCluster, name: str, column: Iterable[bytes]) -> None:
    """Only the keys of a dict would be sent, and a set has no positions for results; on every producer class."""
    given, keys = (column, None) if name == "values" else ([b"v"], column)
    text = rf"^{name} must be .*, not a {type(column).__name__}: pass"
    async with Producer(one_broker.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=text):
            await producer.send_many("orders", given, keys=keys)
        with pytest.raises(TypeError, match=text):
            await producer.topic("orders", value=bytes).send_many(given, keys=keys)

    def send_blocking() -> None:
        with BlockingProducer(one_broker.bootstrap_servers) as blocking:
            with pytest.raises(TypeError, match=text):
                blocking.send_many("orders", given, keys=keys)
            with pytest.raises(TypeError, match=text):
                blocking.topic("orders", value=bytes).send_many(given, keys=keys)

    await asyncio.to_thread(send_blocking)
    assert values(one_broker, "orders") == []


class Frame:
    """As pandas has it: iterates the names of its columns."""

    def __init__(self, columns: Mapping[str, object]) -> None:
        self.columns = list(columns)
        self.__arrow_c_stream__ = pa.table(columns).__arrow_c_stream__

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


class Series:
    """As pandas has it: one column, which exports itself, too."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column
        self.__arrow_c_stream__ = column.__arrow_c_stream__

    def __iter__(self) -> Iterator[int]:
        return iter(self._column.to_pylist())


@pytest.mark.parametrize("name", ["values", "keys", "timestamps", "record_headers"])
@pytest.mark.parametrize("make", [Frame, pa.table, pa.record_batch])
async def test_table_is_no_column(one_broker: FakeCluster, make: Callable[[object], object], name: str) -> None:
    """The names of a frame's columns would be sent, and reported as delivered."""
    columns: dict[str, object] = {"values": ["v", "v"], name: make({"id": [1, 2, 3], "name": ["a", "b", "c"]})}
    async with Producer(one_broker.bootstrap_servers, value_serializer=JsonSerializer()) as producer:
        with pytest.raises(TypeError, match=rf"^{name} must be an iterable of {name}, not a .* to send_arrow"):
            await producer.send_many("orders", **columns)  # type: ignore[arg-type]

    assert values(one_broker, "orders") == []


async def test_column_of_a_table_is_one(producer: Producer, one_broker: FakeCluster) -> None:
    table = pa.table({"at": [1_000, 2_000]})
    await (await producer.send_many("orders", [b"1", b"2"], timestamps=Series(table["at"]), partition=0))

    assert [record.timestamp for record in one_broker.records("orders", 0)] == [1_000, 2_000]


async def test_views_of_a_dict_are_columns(producer: Producer, one_broker: FakeCluster) -> None:
    table = {b"k1": b"v1", b"k2": b"v2"}
    await (await producer.send_many("orders", table.values(), keys=table.keys(), partition=0))

    assert [(record.key, record.value) for record in one_broker.records("orders", 0)] == list(table.items())
