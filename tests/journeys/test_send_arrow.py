"""The rows of an Arrow table, as records: what `send_many` does with the same rows."""

import asyncio
import gc
import struct
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import (
    BlockingProducer,
    BulkDelivery,
    BulkResult,
    JsonSerializer,
    KafkaError,
    OffsetRange,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerOptions,
    ProducerRecord,
    RecordTooLargeError,
    TopicPartition,
)
from aioproducer.testing import FakeCluster
from tests.arrow_tables import RecordTable, record_tables
from tests.fakes.foreign_arrow import ForeignColumn, numbers, rows_of
from tests.produced import values

TEXTS = ["a", None, "", "Köln"]
BYTES = [None if text is None else text.encode() for text in TEXTS]

BYTES_COLUMNS = [
    pa.array(BYTES, pa.binary()),
    pa.array(BYTES, pa.large_binary()),
    pa.array(BYTES, pa.binary_view()),
    pa.array(TEXTS, pa.string()),
    pa.array(TEXTS, pa.large_string()),
    pa.array(TEXTS, pa.string_view()),
    pa.array(BYTES, pa.binary()).dictionary_encode(),
    pa.array(TEXTS, pa.string()).dictionary_encode(),
    pa.array(["cut off", *TEXTS, "cut off"], pa.string())
    .dictionary_encode()
    .cast(pa.dictionary(pa.int8(), pa.string()))
    .slice(1, 4),
]

PAIRS = [[("h", b"1"), ("h", None)], None, []]
HEADER_COLUMNS = [
    pa.array(
        [row if row is None else [{"key": name, "value": value} for name, value in row] for row in PAIRS],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    pa.array(
        [row if row is None else [{"name": name, "v": value} for name, value in row] for row in PAIRS],
        pa.large_list(pa.struct([("name", pa.large_string()), ("v", pa.large_binary())])),
    ),
    pa.array(
        [row if row is None else [(name, value and value.decode()) for name, value in row] for row in PAIRS],
        pa.map_(pa.string(), pa.string()),
    ),
]


def type_of(column: object) -> str:
    return str(column.type)  # type: ignore[attr-defined]


async def sent(producer: Producer, batch: object, **names: str) -> BulkResult:
    return await (await producer.send_arrow("orders", batch, **names))


@pytest.mark.parametrize("column", BYTES_COLUMNS, ids=type_of)
async def test_every_kind_of_bytes_is_read(producer: Producer, one_broker: FakeCluster, column: pa.Array) -> None:
    batch = pa.table({"value": column, "key": column, "partition": pa.array([0] * 4)})

    result = await sent(producer, batch)

    assert result == BulkResult(4, {TopicPartition("orders", 0): OffsetRange(0, 3, 4)}, {})
    assert [(record.key, record.value) for record in one_broker.records("orders", 0)] == [(row, row) for row in BYTES]


async def test_bytes_of_one_size_are_read(producer: Producer, one_broker: FakeCluster) -> None:
    batch = pa.table({"value": pa.array([b"ab", None], pa.binary(2)), "key": pa.nulls(2), "partition": [0, 0]})

    await sent(producer, batch)

    assert [(record.key, record.value) for record in one_broker.records("orders", 0)] == [(None, b"ab"), (None, None)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, None], pa.int64()),
        pa.array([5, None], pa.timestamp("ms")),
        pa.array([5_999, None], pa.timestamp("us", "Europe/Berlin")),
        pa.array([5_999_999, None], pa.timestamp("ns")),
        pa.array([5, None], pa.uint32()),
    ],
    ids=type_of,
)
async def test_times_are_milliseconds(producer: Producer, one_broker: FakeCluster, column: pa.Array) -> None:
    before = int(datetime.now(UTC).timestamp() * 1000)

    await sent(producer, pa.table({"value": ["a", "b"], "partition": [0, 0], "timestamp": column}))

    first, second = (record.timestamp for record in one_broker.records("orders", 0))
    assert first == 5
    assert second >= before


async def test_time_beyond_all_milliseconds_refuses_its_row(producer: Producer, one_broker: FakeCluster) -> None:
    times = pa.array([5, 2**62, None, 0], pa.timestamp("s"))

    result = await sent(producer, pa.table({"value": ["a", "b", "c", "d"], "partition": [0] * 4, "timestamp": times}))

    assert {position: type(error) for position, error in result.errors.items()} == {1: ValueError}
    first, _, last = (record.timestamp for record in one_broker.records("orders", 0))
    assert (first, last) == (5_000, 0)


@pytest.mark.parametrize("column", HEADER_COLUMNS, ids=type_of)
async def test_headers_are_lists_or_maps(producer: Producer, one_broker: FakeCluster, column: pa.Array) -> None:
    await sent(producer, pa.table({"value": ["a", "b", "c"], "partition": [0, 0, 0], "headers": column}))

    found = [list(record.headers) for record in one_broker.records("orders", 0)]
    assert found == [[("h", b"1"), ("h", None)], [], []]


async def test_columns_are_found_by_the_names_given(producer: Producer, one_broker: FakeCluster) -> None:
    batch = pa.record_batch({"body": ["v"], "id": ["k"], "at": [7], "where": [2], "other": [1.5]})

    await sent(producer, batch, value="body", key="id", timestamp="at", partition="where")

    (found,) = one_broker.records("orders", 2)
    assert (found.key, found.value, found.timestamp, list(found.headers)) == (b"k", b"v", 7, [])


async def test_null_partition_is_chosen_by_the_key(producer: Producer) -> None:
    expected = (await producer.send("orders", b"", key=b"customer-7")).partition

    result = await sent(producer, pa.table({"value": ["v"], "key": ["customer-7"], "partition": pa.nulls(1)}))

    assert list(result.offsets) == [TopicPartition("orders", expected)]


async def test_chunks_and_slices_keep_their_rows(producer: Producer, one_broker: FakeCluster) -> None:
    """A table of many chunks, more rows than a window, and a slice of a slice."""
    numbers = [str(number) for number in range(5_000)]
    table = pa.concat_tables([pa.table({"value": numbers[:2_000]}), pa.table({"value": numbers[2_000:]})])
    table = table.append_column("partition", pa.array([0] * 5_000)).slice(10).slice(5, 4_900)

    result = await sent(producer, table)

    assert result.delivered == 4_900
    assert values(one_broker, "orders") == [text.encode() for text in numbers[15:4_915]]


WINDOW = 1024


def shaped(table: pa.Table, shape: str) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader:
    """The same rows as one batch, as chunks around the window's size, as a slice, or as a stream."""
    if shape == "batch":
        return (
            table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
        )
    if shape == "slice":
        others = table.slice(0, 3)
        return pa.concat_tables([others, table, others]).combine_chunks().slice(len(others), len(table))
    sizes = [0, 1, WINDOW - 1, 0, WINDOW, WINDOW + 1]
    pieces, start = [], 0
    for size in [*sizes, len(table)]:
        pieces.append(table.slice(start, size))
        start += size
    if shape == "chunks":
        return pa.concat_tables(pieces)
    batches = [batch for piece in pieces for batch in piece.combine_chunks().to_batches()]
    empty = pa.RecordBatch.from_pylist([], table.schema)
    return pa.RecordBatchReader.from_batches(table.schema, [empty, *batches, empty])


@pytest.mark.parametrize("rows", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW - 1, 2 * WINDOW, 2 * WINDOW + 1])
@pytest.mark.parametrize("shape", ["batch", "slice", "chunks", "stream"])
async def test_every_row_is_sent_at_the_edges_of_windows(  # noqa: PLR0917  # fixtures, and the parts of a row
    producer: Producer, one_broker: FakeCluster, shape: str, rows: int
) -> None:
    edges = {0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW - 1, 2 * WINDOW, rows - 1}
    expected = [
        (None, b"k%d" % row, 7, ()) if row in edges else (b"v%d" % row, None, row, (("h", b"%d" % row),))
        for row in range(rows)
    ]
    columns = list(zip(*expected, strict=True)) or [(), (), (), ()]
    table = pa.table(
        {
            "value": pa.array(columns[0], pa.binary()),
            "key": pa.array(columns[1], pa.binary()),
            "timestamp": pa.array(columns[2], pa.int64()),
            "headers": pa.array([row or None for row in columns[3]], pa.map_(pa.string(), pa.binary())),
            "partition": pa.array([0] * rows, pa.int32()),
        }
    )

    result = await sent(producer, shaped(table, shape))

    records = one_broker.records("orders", 0)
    assert [(record.value, record.key, record.timestamp, tuple(record.headers)) for record in records] == expected
    ranges = {TopicPartition("orders", 0): OffsetRange(0, rows - 1, rows)} if rows else {}
    assert result == BulkResult(rows, ranges, {})


class Exported:
    """Something that is not pyarrow's, and exports itself as Arrow: as polars, pandas and DuckDB do."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        capsules: tuple[object, object] = self._batch.__arrow_c_array__(requested_schema)
        return capsules


async def test_any_arrow_export_is_read(producer: Producer, one_broker: FakeCluster) -> None:
    """An array, and a stream, which is read as it arrives."""
    batch = pa.record_batch({"value": ["a", "b"], "partition": [0, 0]})

    await sent(producer, Exported(batch))
    await sent(producer, pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch])))

    assert values(one_broker, "orders") == [b"a", b"b"] * 3


async def test_serializers_do_not_run(one_broker: FakeCluster) -> None:
    seen: list[object] = []

    class Sees(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
            seen.append(record.value)
            return record

    async with Producer(
        one_broker.bootstrap_servers, value_serializer=JsonSerializer(), interceptors=[Sees()]
    ) as producer:
        await sent(producer, pa.table({"value": ["a"]}))

    assert (values(one_broker, "orders"), seen) == ([b"a"], [b"a"])


async def test_row_that_is_refused_keeps_no_other_back(producer: Producer) -> None:
    batch = pa.table({"value": [b"a", bytes(2_000_000), b"b", b"c"], "partition": [0, 0, -1, 0]})

    result = await sent(producer, batch)

    assert {position: type(error) for position, error in result.errors.items()} == {
        1: RecordTooLargeError,
        2: ValueError,
    }
    assert result.delivered == 2


PAIR = pa.struct([("name", pa.string()), ("value", pa.binary())])


async def test_headers_that_are_none_refuse_their_row(producer: Producer) -> None:
    names = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")])
    damaged = pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([names, [b"v"]], fields=list(PAIR)))
    whole = pa.array([[{"name": "n", "value": b"v"}]] * 2_999 + [[None]], pa.list_(PAIR))
    batch = pa.table({"value": [b"x"] * 3_001, "headers": pa.chunked_array([whole, damaged])})

    result = await sent(producer, batch)

    assert {position: type(error) for position, error in result.errors.items()} == {2_999: TypeError, 3_000: TypeError}
    assert result.delivered == 2_999


@pytest.mark.parametrize(
    "columns,names,text",
    [
        ({"value": [b"x"]}, {"key": 5}, r"key must be the name of a column, got int"),
        ({"value": [1]}, {}, r"column 'value' is of type int64; value must be binary or string"),
        ({"body": [1.5]}, {"value": "body"}, r"column 'body' is of type double; value must be binary or string"),
        ({"value": ["a"], "key": [True]}, {}, r"column 'key' is of type bool; key must be binary or string"),
        ({"value": ["a"], "partition": ["1"]}, {}, r"column 'partition' is of type string; partition must be an int"),
        ({"value": ["a"], "timestamp": [1.5]}, {}, r"column 'timestamp' is of type double; timestamp must be a times"),
        ({"value": ["a"], "headers": ["h"]}, {}, r"column 'headers' is of type string; headers must be a list of"),
        ({"value": ["a"], "headers": [["h"]]}, {}, r"column 'headers' is of type list<.*>; headers must be a list of"),
        ({"value": ["a"], "headers": [[{"a": "b", "c": 1}]]}, {}, r"column 'headers' is of type list<.*int64.*>"),
    ],
)
async def test_column_of_another_type_is_refused(  # noqa: PLR0917  # the parts of a row
    producer: Producer, columns: dict[str, object], names: dict[str, str], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        await producer.send_arrow("orders", pa.table(columns), **names)

    assert producer.statistics().records_pending == 0


@pytest.mark.parametrize(
    "names,text",
    [
        ({}, r"the batch has no column 'value' for value; its columns are \['a', 'b', 'b'\]"),
        ({"value": "a", "key": "id"}, r"the batch has no column 'id' for key"),
        ({"value": "b"}, r"the batch has 2 columns 'b' for value"),
    ],
)
async def test_column_that_is_not_there_is_refused(producer: Producer, names: dict[str, str], text: str) -> None:
    batch = pa.Table.from_arrays([["1"], ["2"], ["3"]], names=["a", "b", "b"])

    with pytest.raises(ValueError, match=text):
        await producer.send_arrow("orders", batch, **names)


@pytest.mark.parametrize(
    "batch",
    [[b"a"], {"value": [b"a"]}, b"a", None, pa.array([b"a"]), pa.chunked_array([[b"a"]]), pa.array([1])],
    ids=lambda batch: type(batch).__name__,
)
async def test_other_types_than_tables_are_refused(producer: Producer, batch: object) -> None:
    with pytest.raises(TypeError, match=f"batch must be a pyarrow RecordBatch or Table, .* not {type(batch).__name__}"):
        await producer.send_arrow("orders", batch)


async def test_blocking_producer_sends_tables_too(one_broker: FakeCluster) -> None:
    def work() -> BulkResult:
        with BlockingProducer(one_broker.bootstrap_servers) as producer:
            return producer.send_arrow("orders", pa.table({"text": ["a", "b"], "partition": [0, 0]}), value="text")

    result = await asyncio.to_thread(work)

    assert (result.delivered, values(one_broker, "orders")) == (2, [b"a", b"b"])


def test_without_pyarrow_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from aioproducer._producer.arrow import ArrowRecords, ColumnNames
ArrowRecords([], ColumnNames())
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "send_arrow needs pyarrow: pip install 'aioproducer[arrow]'" in answer.stderr


# As the same rows by `send_many`; and what another library gave is let go


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
