"""`send_arrow` does what `send_many` does with the same rows, and lets go of what another library gave it."""

import asyncio
import gc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import BulkDelivery, BulkResult, KafkaError, Producer, ProducerClosedError, ProducerOptions
from aioproducer.testing import FakeCluster
from tests.arrow_tables import RecordTable, record_tables
from tests.fakes.foreign_arrow import ForeignColumn, numbers, rows_of
from tests.produced import values

TIGHT: ProducerOptions = {"buffer_memory": 16_384, "batch_size": 1_024, "max_request_size": 8_192, "linger_ms": 0}


async def sent_as_rows(producer: Producer, topic: str, rows: RecordTable) -> BulkResult:
    bulk = BulkDelivery()
    for position, (value, key, partition, timestamp, headers) in enumerate(rows.rows):
        try:
            taken = producer.enqueue(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)  # type: ignore[arg-type]
            bulk._take(position, await taken)
        except (KafkaError, TypeError, ValueError) as error:
            bulk._refuse(position, error)
    return await bulk


def log_of(cluster: FakeCluster, topic: str) -> list[tuple[object, ...]]:
    return [(record.key, record.value, tuple(record.headers)) for record in cluster.records(topic, 0)]


def times_of(cluster: FakeCluster, rows: RecordTable, result: BulkResult) -> list[tuple[int, object]]:
    """The times that rows brought with them, as they were sent and as they were given."""
    accepted = [row for position, row in enumerate(rows.rows) if position not in result.errors]
    records = cluster.records("arrow", 0)
    return [(record.timestamp, row[3]) for record, row in zip(records, accepted, strict=True) if row[3] is not None]


@given(record_tables(partitions=1, has_sane_times=True), st.sampled_from([TIGHT, {}]))
@settings(max_examples=25)
def test_table_is_sent_as_its_rows_are(rows: RecordTable, options: ProducerOptions) -> None:
    async def both() -> None:
        async with FakeCluster(nodes=1, topics={"arrow": 1, "rows": 1}) as cluster:
            async with Producer(cluster.bootstrap_servers, **options) as producer:
                expected = await sent_as_rows(producer, "rows", rows)
                found = await (await producer.send_arrow("arrow", rows.table))
            assert log_of(cluster, "arrow") == log_of(cluster, "rows")
            assert all(time == given_time for time, given_time in times_of(cluster, rows, found))
        assert found.delivered == expected.delivered
        assert list(found.offsets.values()) == list(expected.offsets.values())
        assert refusals(found) == refusals(expected)

    asyncio.run(both())


def refusals(result: BulkResult) -> dict[int, tuple[type[Exception], str]]:
    return {
        position: (type(error), str(error).replace("'arrow'", "'rows'")) for position, error in result.errors.items()
    }


@pytest.mark.parametrize("is_keyed", [False, True])
async def test_columns_and_lists_wait_for_memory(one_broker: FakeCluster, *, is_keyed: bool) -> None:
    rows = [b"%05d" % row * 20 for row in range(5_000)]
    keys = [b"%d" % (row % 50) for row in range(5_000)] if is_keyed else None
    async with Producer(one_broker.bootstrap_servers, **TIGHT) as producer:
        columns = {"value": rows, "key": keys} if keys else {"value": rows}
        by_arrow = await (await producer.send_arrow("orders", pa.table(columns)))
        counted = [len(one_broker.records("orders", number)) for number in range(3)]
        by_many = await (await producer.send_many("orders", rows, keys=keys))

    assert (by_arrow.delivered, by_many.delivered, by_arrow.errors, by_many.errors) == (5_000, 5_000, {}, {})
    for number, count in enumerate(counted):
        found = [record.value or b"" for record in one_broker.records("orders", number)]
        assert found[:count] == sorted(found[:count])
        if is_keyed:
            assert found[:count] == found[count:]
    assert sorted(filter(None, values(one_broker, "orders"))) == sorted(rows * 2)


async def test_rows_behind_the_close_are_refused(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, **TIGHT) as producer:
        table = pa.table({"value": [b"v" * 500] * 2_000, "partition": [0] * 2_000})
        call = asyncio.create_task(producer.send_arrow("orders", table))
        while producer.statistics().buffer_available_bytes == producer.statistics().buffer_total_bytes:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)  # until rows are accepted
        await producer.close()
        bulk = await call

    result = await bulk
    assert result.delivered == len(one_broker.records("orders", 0))
    assert list(result.errors) == list(range(result.delivered, 2_000))
    assert {type(error) for error in result.errors.values()} == {ProducerClosedError}


async def test_rows_of_a_transaction_are_committed_with_it(one_broker: FakeCluster) -> None:
    async with Producer(one_broker.bootstrap_servers, transactional_id="arrow") as producer:
        async with producer.transaction() as transaction:
            await transaction.send_arrow("orders", pa.table({"value": ["a", "b"], "partition": [0, 0]}))
        await producer.begin_transaction()
        await producer.send_arrow("orders", pa.table({"value": ["c"], "partition": [0]}))
        await producer.abort_transaction()

    assert [record.value for record in one_broker.committed_records("orders", 0)] == [b"a", b"b"]


def foreign(offsets: bytes, *, name: bytes = b"value", kind: bytes = b"z") -> ForeignColumn:
    return rows_of(ForeignColumn(kind, [None, offsets, b"abc"], 2, name=name), length=2)


async def test_batch_of_another_library_is_sent_and_released(producer: Producer, one_broker: FakeCluster) -> None:
    batch = foreign(numbers("i", 0, 1, 3))

    await (await producer.send_arrow("orders", batch))
    gc.collect()

    assert sorted(filter(None, values(one_broker, "orders"))) == [b"a", b"bc"]
    assert batch.released == {"schema": 1, "array": 1}


@pytest.mark.parametrize(
    "batch,error",
    [
        (foreign(numbers("i", 0, 3, 1)), ValueError),
        (foreign(numbers("i", -2, 1, 3)), ValueError),
        (foreign(numbers("i", 0, 2**31 - 1, 3)), ValueError),
        (foreign(numbers("q", 0, 2**62, 3), kind=b"Z"), ValueError),
        (foreign(numbers("i", 0, 1, 3), name=b"body"), ValueError),
        (rows_of(ForeignColumn(b"i", [None, numbers("i", 7, 8)], 2), length=2), TypeError),
    ],
)
async def test_damaged_batch_is_refused_whole_and_released(
    producer: Producer, batch: ForeignColumn, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await producer.send_arrow("orders", batch)
    gc.collect()

    assert producer.statistics().records_pending == 0
    assert batch.released == {"schema": 1, "array": 1}


async def test_batch_is_released_when_its_call_is_cancelled(one_broker: FakeCluster) -> None:
    rows = 2_000
    offsets = numbers("i", *range(0, 500 * (rows + 1), 500))
    batch = rows_of(ForeignColumn(b"z", [None, offsets, b"v" * 500 * rows], rows), length=rows)
    async with Producer(one_broker.bootstrap_servers, **TIGHT) as producer:
        call = asyncio.create_task(producer.send_arrow("orders", batch))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    del call
    gc.collect()

    assert len(values(one_broker, "orders")) < rows
    assert batch.released == {"schema": 1, "array": 1}
