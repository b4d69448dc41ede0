"""Columns of Arrow tables, made ready for the native append: what `send_arrow` reads.

    value        binary or string of any kind, dictionary-encoded or not; null is a tombstone
    key          as value; null is no key
    partition    integers; null has it chosen
    timestamp    timestamps of any unit, or integers of milliseconds since 1970; null is now
    headers      lists of (name, value) structs, or maps; null is none

`_native/arrow_columns.pyx` reads binary, string and their large forms, integers, timestamps and lists of those where
they are. pyarrow takes the table apart and converts the other types, some rows at a time, so that a large table is
never a second time in memory. It is imported here alone, when it is needed.
"""

from __future__ import annotations

import importlib
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aioproducer._native.arrow_columns import ArrowRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    import pyarrow as pa

    from aioproducer._native.arrow_columns import Capsules

    Header: TypeAlias = tuple[str, bytes | str | None] | dict[str, bytes | str | None] | None
    HeaderRow: TypeAlias = list[Header] | None

CONVERTED_ROWS: Final = 8192  # rows that are converted at a time
_HEADER_FIELDS: Final = 2


class ColumnNames(NamedTuple):
    """Names of the columns of a record's parts; None stands for the part's own name, if there is such a column."""

    value: str | None = None
    key: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    headers: str | None = None


class ArrowRecords:
    """The rows of a batch, a table or a stream, as columns of records.

    Args:
        data: a pyarrow `RecordBatch`, `Table` or `RecordBatchReader`, or what exports itself by `__arrow_c_stream__`
            or `__arrow_c_array__` (a polars or pandas frame, a DuckDB result).

    Raises:
        ModuleNotFoundError, TypeError, ValueError: as `SendMethods.send_arrow`.
    """

    def __init__(self, data: object, names: ColumnNames) -> None:
        arrow = _pyarrow()
        schema, self._batches = _opened(arrow, data)
        for part, name in zip(ColumnNames._fields, names, strict=True):
            if name is not None and not isinstance(name, str):
                raise TypeError(f"{part} must be the name of a column, got {type(name).__name__}")
        self._columns = _columns_of(schema, names)
        self._converts = any(column is not None and column[1] is not _as_it_is for column in self._columns)

    def __iter__(self) -> Iterator[ArrowRows]:
        """Read the rows in order, as many at a time as there are in a batch, once."""
        for batch in self._batches:
            for window in _windows(batch) if self._converts else [batch]:
                yield ArrowRows(window.num_rows, *[_exported(window, column) for column in self._columns])


Converter: TypeAlias = "Callable[[pa.Array], pa.Array]"  # turns a column into one of a type that is read natively
Column: TypeAlias = "tuple[int, Converter] | None"  # where a column is, and what makes it readable; None is no column
_ALLOWED: Final = {
    "value": "value must be binary or string",
    "key": "key must be binary or string",
    "partition": "partition must be an integer",
    "timestamp": "timestamp must be a timestamp, or an integer of milliseconds since 1970",
    "headers": "headers must be a list of structs of a string and a binary, or a map from string to binary",
}


@lru_cache(maxsize=64)  # the batches of a stream that comes from Spark are calls of their own
def _columns_of(schema: pa.Schema, names: ColumnNames) -> list[Column]:
    arrow = _pyarrow()
    finders: dict[str, Callable[[ModuleType, pa.DataType], Converter | None]] = {
        "value": _bytes_converter,
        "key": _bytes_converter,
        "partition": _integer_converter,
        "timestamp": _timestamp_converter,
        "headers": _headers_converter,
    }
    columns: list[Column] = []
    for part, name in zip(ColumnNames._fields, names, strict=True):
        position = _position_of(schema, part, name)
        if position is None:
            columns.append(None)
            continue
        field = schema.field(position)
        converter = finders[part](arrow, field.type)
        if converter is None:
            raise TypeError(f"column {field.name!r} is of type {field.type}; {_ALLOWED[part]}")
        columns.append((position, converter))
    return columns


def _position_of(schema: pa.Schema, part: str, name: str | None) -> int | None:
    column = part if name is None else name
    positions: list[int] = schema.get_all_field_indices(column)
    if not positions and name is None and part != "value":
        return None
    if len(positions) != 1:
        count = f"{len(positions)} columns" if positions else "no column"
        raise ValueError(f"the batch has {count} {column!r} for {part}; its columns are {schema.names}")
    return positions[0]


def _windows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, CONVERTED_ROWS) for start in range(0, batch.num_rows, CONVERTED_ROWS))


def _exported(window: pa.RecordBatch, column: Column) -> Capsules | None:
    if column is None:
        return None
    position, convert = column
    converted = convert(window.column(position))
    converted.validate()  # the sizes of buffers, as far as pyarrow knows them
    capsules: Capsules = converted.__arrow_c_array__()
    return capsules


def _pyarrow() -> ModuleType:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        text = "send_arrow needs pyarrow: pip install 'aioproducer[arrow]'"
        raise ModuleNotFoundError(text, name="pyarrow") from error


def _opened(arrow: ModuleType, data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(data, (arrow.RecordBatch, arrow.Table)):
        return data.schema, iter([data] if isinstance(data, arrow.RecordBatch) else data.to_batches())
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = arrow.RecordBatchReader.from_stream(data)
            return reader.schema, iter(reader)
        if hasattr(data, "__arrow_c_array__"):
            batch = arrow.record_batch(data)
            return batch.schema, iter([batch])
    except arrow.ArrowInvalid:
        pass  # one column, not a table of them
    raise TypeError(
        "batch must be a pyarrow RecordBatch or Table, or rows that have __arrow_c_stream__ or __arrow_c_array__, "
        f"not {type(data).__name__}"
    )


# From a type to the conversion of its column


def _as_it_is(column: pa.Array) -> pa.Array:
    return column


def _bytes_converter(arrow: ModuleType, kind: pa.DataType) -> Converter | None:
    types = arrow.types
    if types.is_binary(kind) or types.is_large_binary(kind) or _is_plain_text(arrow, kind) or types.is_null(kind):
        return _as_it_is
    if types.is_dictionary(kind):
        convert = _bytes_converter(arrow, kind.value_type)
        return None if convert is None else partial(_decoded, arrow, convert)
    if _is_view(arrow, kind, "string") or _is_view(arrow, kind, "binary"):
        return partial(_without_views, arrow)
    return partial(_as_binary, arrow) if types.is_fixed_size_binary(kind) else None


def _decoded(arrow: ModuleType, convert: Converter, column: pa.DictionaryArray) -> pa.Array:
    dictionary = _as_binary(arrow, convert(column.dictionary))
    dictionary.validate(full=True)
    # safe: the indices are checked
    return arrow.DictionaryArray.from_arrays(column.indices, dictionary, safe=True).dictionary_decode()


def _without_views(arrow: ModuleType, column: pa.Array) -> pa.Array:
    views = arrow.Array.from_buffers(
        arrow.binary_view(), len(column), column.buffers(), null_count=-1, offset=column.offset
    )
    views.validate(full=True)
    return views.cast(arrow.large_binary())


def _as_binary(arrow: ModuleType, column: pa.Array) -> pa.Array:
    """A column as bytes: text need not be UTF-8 then."""
    is_large = arrow.types.is_large_string(column.type) or arrow.types.is_large_binary(column.type)
    return column.cast(arrow.large_binary() if is_large else arrow.binary())


def _integer_converter(arrow: ModuleType, kind: pa.DataType) -> Converter | None:
    return _as_it_is if arrow.types.is_integer(kind) or arrow.types.is_null(kind) else None


def _timestamp_converter(arrow: ModuleType, kind: pa.DataType) -> Converter | None:
    return _as_it_is if arrow.types.is_timestamp(kind) else _integer_converter(arrow, kind)


def _headers_converter(arrow: ModuleType, kind: pa.DataType) -> Converter | None:
    types = arrow.types
    if types.is_null(kind):
        return _as_it_is
    if types.is_map(kind):
        fields = [kind.key_type, kind.item_type]
    elif (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = [field.type for field in kind.value_type]
    else:
        return None
    if not _are_header(arrow, *fields):
        return None
    is_native = _is_plain_text(arrow, fields[0]) and _bytes_converter(arrow, fields[1]) is _as_it_is
    return _as_it_is if is_native else partial(_plain_headers, arrow)


def _are_header(arrow: ModuleType, *types: pa.DataType) -> bool:
    if len(types) != _HEADER_FIELDS or _bytes_converter(arrow, types[1]) is None:
        return False
    return _is_plain_text(arrow, types[0]) or _is_view(arrow, types[0], "string")


def _is_plain_text(arrow: ModuleType, kind: pa.DataType) -> bool:
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind))


def _is_view(arrow: ModuleType, kind: pa.DataType, of: str) -> bool:
    is_view = getattr(arrow.types, f"is_{of}_view", None)  # pyarrow 16
    return bool(is_view is not None and is_view(kind))


def _plain_headers(arrow: ModuleType, column: pa.Array) -> pa.Array:
    """Lists of pairs, by way of Python objects: such columns are rare."""
    pair = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    return arrow.array(map(_pairs, _python_rows(column)), arrow.list_(pair))


def _python_rows(column: pa.Array) -> list[HeaderRow]:
    """The rows of a column; one with a text that is no UTF-8 holds a null, which its append refuses."""
    try:
        rows: list[HeaderRow] = column.to_pylist()
    except UnicodeDecodeError:
        return [_python_row(row) for row in column]
    return rows


def _python_row(row: pa.Scalar) -> HeaderRow:
    try:
        pairs: HeaderRow = row.as_py()
    except UnicodeDecodeError:
        return [None]
    return pairs


def _pairs(row: HeaderRow) -> list[tuple[object, object] | None] | None:
    return None if row is None else [_pair(header) for header in row]


def _pair(header: Header) -> tuple[object, object] | None:
    if header is None:
        return None
    name, value = header.values() if isinstance(header, dict) else header
    return name, value.encode() if isinstance(value, str) else value
