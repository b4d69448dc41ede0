"""Columns of an Arrow table as records: what `send_arrow` reads.

    value        binary or string of any kind, dictionary-encoded or not; null is a tombstone
    key          as value; null is no key
    partition    integers; null has it chosen
    timestamp    timestamps of any unit, or integers of milliseconds since 1970; null is now
    headers      lists of (name, value) structs, or maps; null is none

pyarrow does the reading, a window of rows at a time, so that a large table is never a second time in memory. It is
imported here alone, when it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import pyarrow as pa

    from aioproducer._native.append import Headers

    Header: TypeAlias = tuple[str, bytes | str | None] | dict[str, bytes | str | None] | None
    Row: TypeAlias = list[Header] | None
    Record: TypeAlias = tuple[bytes | None, bytes | None, int | None, int | None, Headers | None]

WINDOW_ROWS: Final = 1024
"""Rows that are Python objects at a time."""

_HEADER_FIELDS: Final = 2


class ColumnNames(NamedTuple):
    """Which column is which part of a record; None: the one of the part's own name, if there is one."""

    value: str | None = None
    key: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    headers: str | None = None


class ArrowRecords:
    """The rows of a batch, a table or a stream, as records.

    Args:
        data: a pyarrow `RecordBatch`, `Table` or `RecordBatchReader`, or what exports itself by `__arrow_c_stream__`
            or `__arrow_c_array__` (a polars or pandas frame, a DuckDB result).
        names: of the columns.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        TypeError: data is none of that, or a column is of a type that its part cannot have; names it.
        ValueError: there is no such column, or two of the name.
    """

    def __init__(self, data: object, names: ColumnNames) -> None:
        self._arrow = _pyarrow()
        self._schema, self._batches = _opened(self._arrow, data)
        readers: dict[str, Callable[[ModuleType, pa.DataType], Reader | None]] = {
            "value": _bytes_reader,
            "key": _bytes_reader,
            "partition": _integer_reader,
            "timestamp": _timestamp_reader,
            "headers": _headers_reader,
        }
        self._columns = [
            self._column(part, name, readers[part]) for part, name in zip(ColumnNames._fields, names, strict=True)
        ]

    def _column(
        self, part: str, name: str | None, find: Callable[[ModuleType, pa.DataType], Reader | None]
    ) -> tuple[int, Reader] | None:
        column = part if name is None else name
        if not isinstance(column, str):
            raise TypeError(f"{part} must be the name of a column, got {type(column).__name__}")
        positions = self._schema.get_all_field_indices(column)
        if not positions and name is None and part != "value":
            return None
        if len(positions) != 1:
            count = f"{len(positions)} columns" if positions else "no column"
            raise ValueError(f"the batch has {count} {column!r} for {part}; its columns are {self._schema.names}")
        kind = self._schema.field(positions[0]).type
        reader = find(self._arrow, kind)
        if reader is None:
            raise TypeError(f"column {column!r} is of type {kind}; {_ALLOWED[part]}")
        return positions[0], reader

    def __iter__(self) -> Iterator[Record]:
        """Read (value, key, partition, timestamp, headers) of one row after another, once."""
        for batch in self._batches:
            for start in range(0, batch.num_rows, WINDOW_ROWS):
                window = batch.slice(start, WINDOW_ROWS)
                yield from zip(
                    *(_read(window, column) for column in self._columns),
                    strict=True,
                )


Reader: TypeAlias = "Callable[[pa.Array], Sequence[object]]"
"""Turns the rows of a column into what the append takes."""

_ALLOWED: Final = {
    "value": "value must be binary or string",
    "key": "key must be binary or string",
    "partition": "partition must be an integer",
    "timestamp": "timestamp must be a timestamp, or an integer of milliseconds since 1970",
    "headers": "headers must be a list of structs of a string and a binary, or a map from string to binary",
}


def _read(window: pa.RecordBatch, column: tuple[int, Reader] | None) -> Sequence[object]:
    if column is None:
        return [None] * window.num_rows
    position, read = column
    return read(window.column(position))


def _pyarrow() -> ModuleType:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        text = "send_arrow needs pyarrow: pip install pyarrow"
        raise ModuleNotFoundError(text, name="pyarrow") from error


def _opened(arrow: ModuleType, data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
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


# From a type to the way its column is read


def _bytes_reader(arrow: ModuleType, kind: pa.DataType) -> Reader | None:
    types = arrow.types
    if types.is_dictionary(kind):
        read = _bytes_reader(arrow, kind.value_type)
        return None if read is None else lambda column: read(column.dictionary_decode())
    if types.is_string(kind):
        return lambda column: _listed(column.cast(arrow.binary()))
    if types.is_large_string(kind) or _is_view(arrow, kind, "string"):
        return lambda column: _listed(column.cast(arrow.large_binary()))
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return _listed if is_bytes or types.is_null(kind) or _is_view(arrow, kind, "binary") else None


def _integer_reader(arrow: ModuleType, kind: pa.DataType) -> Reader | None:
    return _listed if arrow.types.is_integer(kind) or arrow.types.is_null(kind) else None


def _timestamp_reader(arrow: ModuleType, kind: pa.DataType) -> Reader | None:
    if not arrow.types.is_timestamp(kind):
        return _integer_reader(arrow, kind)
    if kind.unit == "s":  # as Python's integers: beyond the year 292 million there is an int64 of seconds, none of ms
        return lambda column: [at and at * 1000 for at in column.cast(arrow.int64()).to_pylist()]
    milliseconds = arrow.timestamp("ms", kind.tz)
    return lambda column: _listed(column.cast(milliseconds, safe=False).cast(arrow.int64()))


def _headers_reader(arrow: ModuleType, kind: pa.DataType) -> Reader | None:
    types = arrow.types
    if types.is_null(kind):
        return _listed
    is_map = types.is_map(kind) and _are_header(arrow, kind.key_type, kind.item_type)
    is_list_of_structs = (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type)
    if is_map or (is_list_of_structs and _are_header(arrow, *(field.type for field in kind.value_type))):
        return lambda column: [_pairs(row) for row in _python_rows(column)]
    return None


def _are_header(arrow: ModuleType, *types: pa.DataType) -> bool:
    return len(types) == _HEADER_FIELDS and _is_text(arrow, types[0]) and _bytes_reader(arrow, types[1]) is not None


def _is_text(arrow: ModuleType, kind: pa.DataType) -> bool:
    types = arrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or _is_view(arrow, kind, "string"))


def _is_view(arrow: ModuleType, kind: pa.DataType, of: str) -> bool:
    is_view = getattr(arrow.types, f"is_{of}_view", None)  # pyarrow 16
    return bool(is_view is not None and is_view(kind))


def _python_rows(column: pa.Array) -> list[Row]:
    """The rows of a column; one with a text that is no UTF-8 holds a null, which its append refuses."""
    try:
        rows: list[Row] = column.to_pylist()
    except UnicodeDecodeError:
        return [_python_row(row) for row in column]
    return rows


def _python_row(row: pa.Scalar) -> Row:
    try:
        pairs: Row = row.as_py()
    except UnicodeDecodeError:
        return [None]
    return pairs


def _pairs(row: Row) -> Headers | None:
    """Headers as the append takes them; a null among them is left for it to refuse."""
    return cast("Headers", tuple(map(_pair, row))) if row else None


def _pair(header: Header) -> tuple[object, object] | None:
    if header is None:
        return None
    name, value = header.values() if isinstance(header, dict) else header
    return name, value.encode() if isinstance(value, str) else value


def _listed(column: pa.Array) -> Sequence[object]:
    rows: Sequence[object] = column.to_pylist()
    return rows
