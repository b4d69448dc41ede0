"""Arrow columns of other libraries: what they say is checked before a row is read, and each is released once."""

import gc

import pyarrow as pa
import pytest

from aioproducer._native.arrow_columns import ArrowRows
from aioproducer._producer.arrow import ArrowRecords, ColumnNames
from tests.fakes.foreign_arrow import ForeignColumn, numbers, rows_of

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
