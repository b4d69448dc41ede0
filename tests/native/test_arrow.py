"""Rows of Arrow tables are appended as the same rows would be; damaged columns are refused."""

import gc
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._accumulator.waiting_record import WaitingRecord
from aioproducer._native.append_many import BulkAppend
from aioproducer._native.arrow_append import ArrowAppend
from aioproducer._native.arrow_columns import ArrowRows
from aioproducer._native.delivery import BatchResult
from aioproducer._producer.arrow import ArrowRecords, ColumnNames
from aioproducer.errors import KafkaError
from tests.arrow_tables import RecordTable, damaged_headers, record_tables
from tests.fakes.core_parts import CoreParts
from tests.fakes.foreign_arrow import ForeignColumn, numbers, rows_of

if TYPE_CHECKING:
    from aioproducer._native.append_many import Row


PARTITIONS = 3
SETTINGS = st.fixed_dictionaries(
    {
        "memory": st.sampled_from([10_000, 1_000_000]),
        "batch_size": st.sampled_from([256, 1_024, 16_384]),
        "max_record_size": st.sampled_from([2_500, 8_000]),
        "ignore_keys": st.booleans(),
    }
)


class Ends(NamedTuple):
    """What became of the rows of one call."""

    refused: list[tuple[int, type[Exception], str]]
    waited: "list[tuple[int, Row]]"
    sent: list[tuple[object, int, bytes]]
    places: list[tuple[int, int, int]]


def appended(many: BulkAppend, parts: CoreParts) -> Ends:
    ends = Ends([], [], [], [])
    is_over = False
    while not is_over:
        try:
            is_over = many.run()
        except (TypeError, ValueError, KafkaError) as error:
            assert many.is_at_row
            ends.refused.append((many.position, type(error), str(error)))
            continue
        if many.waiting is not None:
            ends.waited.append((many.position, many.waiting))
            join(parts, many.waiting)
            acknowledge_all(parts, ends)
    parts.flush()
    acknowledge_all(parts, ends)
    for share in many.shares:
        deliveries = [(position, delivery.result()) for position, delivery in share.deliveries()]
        ends.places.extend((position, metadata.partition, metadata.offset) for position, metadata in deliveries)
        offsets = [metadata.offset for _, metadata in deliveries]
        assert (share.first, share.last) == (
            offsets[0] - share.batch_result.base_offset,
            offsets[-1] - share.batch_result.base_offset,
        )
        assert len(share) == len(deliveries)
    return ends


def join(parts: CoreParts, row: "Row") -> None:
    """Let a row wait for memory."""
    value, key, partition, timestamp, headers = row
    as_bytes, key_as_bytes, at, size = parts.appender.measure("t", value, key, partition, timestamp, headers)
    result = BatchResult(None, None)  # type: ignore[arg-type]  # it is never awaited
    record = WaitingRecord("t", result, timestamp=at, size=size, called_at=parts.now)
    record.value, record.key, record.partition, record.headers = as_bytes, key_as_bytes, partition, headers
    parts.wait_queues.join(record, is_counted=False)


def acknowledge_all(parts: CoreParts, ends: Ends) -> None:
    while batches := parts.drain():
        for batch in batches:
            ends.sent.append(
                (batch.partition.topic_partition, batch.count, bytes(memoryview(batch.chunk)[: batch.size]))
            )
            parts.acknowledge(batch, base_offset=1000 * len(ends.sent))
        parts.wait_queues.serve()


def both(given_table: RecordTable, settings: dict[str, int]) -> tuple[Ends, Ends]:
    ends = []
    for is_arrow in (False, True):
        parts = CoreParts(leaders=(1,) * PARTITIONS, **settings)
        appender = parts.appender
        if is_arrow:
            many: BulkAppend = ArrowAppend(appender, "t", iter(ArrowRecords(given_table.table, ColumnNames())))
        else:
            many = BulkAppend(appender, "t", given_table.rows)  # type: ignore[arg-type]  # some are to be refused
        ends.append(appended(many, parts))
    return ends[0], ends[1]


@given(record_tables(partitions=PARTITIONS), SETTINGS)
def test_columns_are_appended_as_their_rows_are(given_table: RecordTable, settings: dict[str, int]) -> None:
    expected, found = both(given_table, settings)

    assert found == expected
    assert len(found.places) + len(found.refused) + len(found.waited) == len(given_table.rows)


@given(record_tables(partitions=PARTITIONS, is_keyed=False), SETTINGS)
def test_keyless_columns_fill_one_batch_after_another(given_table: RecordTable, settings: dict[str, int]) -> None:
    """To its end, as rows do (KIP-794)."""
    expected, found = both(given_table, settings)

    assert found == expected


@given(record_tables(partitions=PARTITIONS))
def test_rows_of_columns_are_objects_again(given_table: RecordTable) -> None:
    parts = CoreParts()
    many = ArrowAppend(parts.appender, "t", iter(ArrowRecords(given_table.table, ColumnNames())))

    assert list(many.remaining()) == given_table.rows


def test_name_that_is_not_utf8_refuses_its_row() -> None:
    """As a header that is none does."""
    headers = damaged_headers()
    table = RecordTable(
        pa.table({"value": [b"v"], "headers": headers.array}), [(b"v", None, None, None, *headers.rows)]
    )

    expected, found = both(table, {})

    assert found == expected
    assert [error for _, error, _ in found.refused] == [TypeError]


@pytest.mark.parametrize("rows", [1, 1_023, 1_024, 1_025, 5_000])
def test_position_is_the_calls_whatever_the_batches(rows: int) -> None:
    values = [b"%d" % row for row in range(rows)]
    table = pa.Table.from_batches(
        pa.record_batch({"value": [*values[start : start + 700]]}) for start in range(0, rows, 700)
    )
    refused = pa.table({"value": [bytes(300_000), b"last"]})
    objects: list[tuple[object, ...]] = [
        (value, None, None, None, None) for value in [*values, bytes(300_000), b"last"]
    ]

    expected, found = both(RecordTable(pa.concat_tables([table, refused]), objects), {})

    assert found == expected
    assert [position for position, *_ in found.refused] == [rows]


def test_appending_goes_on_after_a_pause() -> None:
    parts = CoreParts()
    many = ArrowAppend(parts.appender, "t", iter(ArrowRecords(pa.table({"value": [b"v"] * 10}), ColumnNames())))
    parts.appender.pause_wanted = True

    assert not many.run()
    assert not parts.appender.pause_wanted
    assert many.position == 0
    assert many.run()
    assert many.position == 9


# Columns as the C data interface hands them over

NARROW = numbers("i", 0, 1, 3)
WIDE = numbers("q", 0, 1, 3)
NAMES = ForeignColumn(b"u", [None, NARROW, b"abc"], 2)
VALUES = ForeignColumn(b"z", [None, NARROW, b"123"], 2)
PAIRS = ForeignColumn(b"+s", [None], 2, [NAMES, VALUES])


def changed(column: ForeignColumn, changes: dict[str, object]) -> ForeignColumn:
    for name, value in changes.items():
        setattr(column, name, value)
    return column


def bytes_column(**changes: object) -> ForeignColumn:
    return changed(ForeignColumn(b"z", [None, NARROW, b"abc"], 2), changes)


def headers_column(**changes: object) -> ForeignColumn:
    return changed(ForeignColumn(b"+l", [None, numbers("i", 0, 1, 2)], 2, [PAIRS]), changes)


def opened(part: str, column: ForeignColumn) -> list[object]:
    capsules = column.__arrow_c_array__()
    parts = ("value", "key", "partition", "timestamp", "headers")
    rows = ArrowRows(2, *(capsules if name == part else None for name in parts))
    return [row[parts.index(part)] for row in (rows[0], rows[1])]


@pytest.mark.parametrize(
    "part,column,expected",
    [
        ("value", bytes_column(), [b"a", b"bc"]),
        ("value", bytes_column(format=b"Z", buffers=[None, WIDE, b"abc"]), [b"a", b"bc"]),
        ("key", bytes_column(buffers=[b"\x02", numbers("i", 0, 0, 3), b"abc"], null_count=-1), [None, b"abc"]),
        (
            "value",
            bytes_column(buffers=[b"\x04", numbers("i", 9, 0, 1, 3), b"abc"], offset=1, null_count=1),
            [None, b"bc"],
        ),
        ("value", bytes_column(buffers=[None, numbers("i", 0, 0, 0), None]), [b"", b""]),
        ("value", ForeignColumn(b"n", [], 2), [None, None]),
        ("partition", ForeignColumn(b"c", [None, b"\x01\xff"], 2), [1, -1]),
        ("partition", ForeignColumn(b"L", [None, numbers("Q", 2**64 - 1, 7)], 2), [2**64 - 1, 7]),
        ("timestamp", ForeignColumn(b"tss:UTC", [None, numbers("q", 1, 2**62)], 2), [1000, 1000 * 2**62]),
        ("timestamp", ForeignColumn(b"tsn:", [None, numbers("q", 1_999_999, -1)], 2), [1, 0]),
        ("headers", headers_column(), [(("a", b"1"),), (("bc", b"23"),)]),
        ("headers", headers_column(buffers=[b"\x01", numbers("i", 0, 0, 0)], null_count=1), [None, None]),
    ],
)
def test_column_is_read_as_it_is_said_to_be(part: str, column: ForeignColumn, expected: list[object]) -> None:
    assert opened(part, column) == expected

    gc.collect()
    assert column.released == {"schema": 1, "array": 1}


MOST = 2**63 - 1


@pytest.mark.parametrize(
    "part,column,text",
    [
        ("value", bytes_column(buffers=[None, numbers("i", 0, 3, 1), b"abc"]), "negative or run back"),
        ("value", bytes_column(buffers=[None, numbers("i", -1, 1, 3), b"abc"]), "negative or run back"),
        ("value", bytes_column(format=b"U", buffers=[None, numbers("q", 0, MOST, 3), b"abc"]), "negative or run back"),
        ("value", bytes_column(format=b"Z", buffers=[None, numbers("q", -MOST, 0, 3), b"abc"]), "negative or run back"),
        ("value", bytes_column(buffers=[None, None, b"abc"]), "has no offsets"),
        ("value", bytes_column(buffers=[None, NARROW, None]), "has no bytes"),
        ("value", bytes_column(buffers=[None, NARROW]), "has 2 buffers and 0 children, not 3 and 0"),
        ("value", bytes_column(n_buffers=0), "has 0 buffers and 0 children, not 3 and 0"),
        ("value", bytes_column(n_children=1), "has 3 buffers and 1 children, not 3 and 0"),
        ("value", bytes_column(length=3), "has 3 rows, not 2"),
        ("value", bytes_column(length=-2), "has -2 rows, not 2"),
        ("value", bytes_column(offset=-1), "has 2 rows from -1; 2 are needed from 0"),
        ("value", bytes_column(offset=MOST), f"has 2 rows from {MOST}; 2 are needed"),
        ("value", bytes_column(is_released=True), "was released"),
        ("partition", ForeignColumn(b"i", [None, None], 2), "has no numbers"),
        ("partition", ForeignColumn(b"i", [None], 2), "has 1 buffers"),
        ("headers", headers_column(buffers=[None, numbers("i", 0, 1, 3)]), "has 2 rows from 0; 3 are needed from 0"),
        ("headers", headers_column(buffers=[None, numbers("i", 0, 2, 1)]), "negative or run back"),
        ("headers", headers_column(children=[]), "has 2 buffers and 0 children, not 2 and 1"),
        ("headers", headers_column(children=[ForeignColumn(b"+s", [None], 2, [NAMES])]), "1 buffers and 1 ch"),
        ("headers", headers_column(children=[ForeignColumn(b"+s", [None], 2, [NAMES, VALUES], offset=1)]), "from 1"),
    ],
)
def test_column_that_is_damaged_is_refused(part: str, column: ForeignColumn, text: str) -> None:
    """Whatever is read of it would be memory of others."""
    with pytest.raises(ValueError, match=text):
        opened(part, column)

    gc.collect()
    assert column.released == {"schema": 1, "array": int(not column.is_released)}


@pytest.mark.parametrize(
    "part,column",
    [
        ("value", ForeignColumn(b"l", [None, WIDE], 2)),
        ("value", ForeignColumn(b"", [], 2)),
        ("partition", bytes_column()),
        ("timestamp", ForeignColumn(b"tdD", [None, WIDE], 2)),
        ("headers", bytes_column()),
        ("headers", headers_column(children=[bytes_column()])),
    ],
)
def test_column_of_another_type_is_refused(part: str, column: ForeignColumn) -> None:
    """`_producer/arrow.py` converts it first, or refuses it."""
    with pytest.raises(TypeError, match=r"the column for .* of Arrow's format '.*', not "):
        opened(part, column)


def test_row_that_is_not_there_is_an_index_error() -> None:
    rows = ArrowRows(0, None, None, None, None, None)

    assert len(rows) == 0
    with pytest.raises(IndexError, match="row 0 of 0"):
        rows[0]


DAMAGED = [
    pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array([b"a"]), safe=False),
    pa.DictionaryArray.from_arrays(pa.array([0, -1]), pa.array(["a"]), safe=False),
    pa.Array.from_buffers(
        pa.binary_view(), 1, [None, pa.py_buffer(numbers("i", 5_000, 0, 3, 0)), pa.py_buffer(b"abc")]
    ),
]


@pytest.mark.parametrize("column", DAMAGED, ids=range(len(DAMAGED)))
def test_column_that_leaves_its_buffers_is_refused(column: pa.Array) -> None:
    records = ArrowRecords(pa.record_batch({"value": column}), ColumnNames())

    with pytest.raises((ValueError, IndexError)):
        next(iter(records))


def test_batch_of_another_library_is_released_once() -> None:
    batch = rows_of(bytes_column(), length=2)

    (rows,) = ArrowRecords(batch, ColumnNames())
    assert batch.released == {"schema": 1, "array": 0}
    assert [rows[0][0], rows[1][0]] == [b"a", b"bc"]
    del rows
    gc.collect()

    assert batch.released == {"schema": 1, "array": 1}
