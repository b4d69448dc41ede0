"""Random Arrow tables of records, and the rows that they stand for."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

BYTES = st.none() | st.binary(max_size=60) | st.binary(min_size=3_000, max_size=3_001)
TEXT = st.none() | st.text(max_size=20)

BYTES_TYPES = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary()))
TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.uint16(), pa.large_string()))
INTEGERS = {
    pa.int8(): (-2, 2**7 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.int16(): (-2, 2**15 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.int32(): (-2, 2**31 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
PAIR_TYPES = (
    (pa.string(), pa.binary()),
    (pa.large_string(), pa.large_string()),
    (pa.string_view(), pa.binary_view()),
    (pa.string(), pa.dictionary(pa.int8(), pa.string())),
)


class Column(NamedTuple):
    """A column, and what each of its rows stands for."""

    array: pa.Array
    rows: Sequence[object]


def array_of(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """An array of this type, also where pyarrow 19 makes no dictionaries of large values from objects."""
    if not isinstance(kind, pa.DictionaryType):
        return pa.array(values, kind)
    encoded = pa.array(values, kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)


def bytes_columns(rows: int) -> st.SearchStrategy[Column]:
    of_bytes = st.builds(
        lambda kind, found: Column(array_of(kind, found), found),
        st.sampled_from(BYTES_TYPES),
        st.lists(BYTES, min_size=rows, max_size=rows),
    )
    of_text = st.builds(
        lambda kind, found: Column(array_of(kind, found), [None if text is None else text.encode() for text in found]),
        st.sampled_from(TEXT_TYPES),
        st.lists(TEXT, min_size=rows, max_size=rows),
    )
    return of_bytes | of_text | st.just(Column(pa.nulls(rows), [None] * rows))


@st.composite
def integer_columns(draw: st.DrawFn, rows: int, *, small: int) -> Column:
    """Integers, most of them below a limit; every type of them with its smallest and largest."""
    kind = draw(st.sampled_from(list(INTEGERS)))
    lowest, highest = INTEGERS[kind]
    number = st.none() | st.integers(0, min(small, highest)) | st.sampled_from([lowest, highest])
    found = draw(st.lists(number, min_size=rows, max_size=rows))
    return Column(array_of(kind, found), found)


@st.composite
def time_columns(draw: st.DrawFn, rows: int, *, is_sane: bool) -> Column:
    unit = draw(st.sampled_from(list(UNITS)))
    multiplier, divisor = UNITS[unit]
    extremes = [-(2**62), -1, -1500, 0 if is_sane else 2**63 - 1]
    number = st.none() | st.integers(0, 2**30) | st.sampled_from(extremes)
    found = draw(st.lists(number, min_size=rows, max_size=rows))
    expected = [None if at is None else abs(at) * multiplier // divisor * (1 if at >= 0 else -1) for at in found]
    return Column(pa.array(found, pa.int64()).cast(pa.timestamp(unit, draw(st.sampled_from([None, "UTC"])))), expected)


@st.composite
def headers_columns(draw: st.DrawFn, rows: int) -> Column:
    """Lists or maps of pairs; some pairs or names are null, which refuses their row."""
    name_type, value_type = draw(st.sampled_from(PAIR_TYPES))
    is_map = draw(st.booleans())
    name = st.text(max_size=5) if is_map else st.none() | st.text(max_size=5)
    pair = st.tuples(name, TEXT)
    row = st.none() | st.lists(pair if is_map else st.none() | pair, max_size=3)
    found = draw(st.lists(row, min_size=rows, max_size=rows))
    fields = pa.struct([("name", name_type), ("value", value_type)])
    kind = pa.map_(name_type, value_type) if is_map else draw(st.sampled_from([pa.list_, pa.large_list]))(fields)
    try:
        array = pa.array(found, kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # what Python objects cannot be made into
        array = pa.array(found, pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])))
    return Column(array, [as_headers(pairs) for pairs in found])


def as_headers(pairs: Sequence[tuple[str | None, str | None] | None] | None) -> tuple[object, ...] | None:
    if not pairs:
        return None
    return tuple(pair and (pair[0], None if pair[1] is None else pair[1].encode()) for pair in pairs)


def damaged_headers() -> Column:
    """One row, whose only name is not UTF-8: it stands for a header that is none."""
    names = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")])
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"])], names=["name", "value"])
    return Column(pa.ListArray.from_arrays([0, 1], pairs), [(None,)])


class RecordTable(NamedTuple):
    """A table, and the rows that it stands for: (value, key, partition, timestamp, headers)."""

    table: pa.Table
    rows: list[tuple[object, ...]]


@st.composite
def record_tables(
    draw: st.DrawFn, *, partitions: int, is_keyed: bool = True, has_sane_times: bool = False
) -> RecordTable:
    """Tables of any types: of several chunks, and a slice of what they were built from.

    With sane times no broker refuses a batch for what may be the time of one of its records.
    """
    total = draw(st.integers(0, 40))
    columns = {"value": draw(bytes_columns(total))}
    parts = {
        "key": bytes_columns(total),
        "partition": integer_columns(total, small=partitions - 1),
        "timestamp": time_columns(total, is_sane=has_sane_times)
        if has_sane_times
        else time_columns(total, is_sane=False) | integer_columns(total, small=2**40),
        "headers": headers_columns(total),
    }
    for part, column in parts.items():
        if (is_keyed or part not in {"key", "partition"}) and draw(st.booleans()):
            columns[part] = draw(column)
    start = draw(st.integers(0, total))
    stop = draw(st.integers(start, total))
    table = pa.table({part: column.array for part, column in columns.items()})
    cut = draw(st.integers(0, total))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)]).slice(start, stop - start)
    copies = draw(st.sampled_from([1, 2, 100]))  # enough that memory runs out
    nothing = [None] * total
    rows = zip(*(columns[part].rows if part in columns else nothing for part in ("value", *parts)), strict=True)
    return RecordTable(pa.concat_tables([table] * copies), list(rows)[start:stop] * copies)
