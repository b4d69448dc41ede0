"""Parquet files as row groups, read with pyarrow and made into records: the input of `aioproducer load`.

A task reads its row groups itself: the JVM would decode them to rows, and then make columns of the rows again.
Needs no pyspark.
"""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from aioproducer.errors import ConfigurationError
from aioproducer.spark._record_parts import RowShape

MAX_BATCH_ROWS: Final = 65_536
MIN_BATCH_ROWS: Final = 256
BATCH_BYTES: Final = 8 << 20
"""Size of the decoded rows of a batch, about; two or three batches are in memory at once."""
SUFFIXES: Final = (".parquet", ".parq", ".pq")


class Split(NamedTuple):
    """A row group of a file."""

    path: str
    row_group: int
    rows: int
    bytes: int
    """Decoded, as the file's footer says."""


def find_splits(paths: Sequence[str], shape: RowShape) -> list[Split]:
    """Return the row groups of files, and of all Parquet files in folders.

    Args:
        paths: of files or folders; a URI such as s3://bucket/folder where pyarrow knows its file system.
        shape: whose columns every file must have.

    Raises:
        ConfigurationError: a file is missing, is not Parquet, or lacks a column.
    """
    found: list[Split] = []
    for path in paths:
        for file in _files(path):
            with _opened(file) as parquet:
                _check_columns(file, parquet.schema_arrow, shape)
                groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
                found += [
                    Split(file, number, group.num_rows, group.total_byte_size) for number, group in enumerate(groups)
                ]
    return found


def rows_of_splits(batches: Iterator[pa.RecordBatch], shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield the records of the row groups that rows (path, row_group) name."""
    for batch in batches:
        for path, row_group in zip(
            batch.column("path").to_pylist(), batch.column("row_group").to_pylist(), strict=True
        ):
            yield from records_of(path, row_group, shape)


def records_of(path: str, row_group: int, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield the records of a row group: columns `value`, and `key` if there are keys.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    with _opened(path) as parquet:
        group = parquet.metadata.row_group(row_group)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        batch_rows = min(MAX_BATCH_ROWS, max(MIN_BATCH_ROWS, BATCH_BYTES // row_bytes))
        columns = None if shape.value is None else sorted({name for name in shape if name is not None})
        for batch in parquet.iter_batches(batch_rows, row_groups=[row_group], columns=columns):
            yield shaped(batch, shape)


def shaped(batch: pa.RecordBatch, shape: RowShape) -> pa.RecordBatch:
    """Return the records of rows."""
    value = json_objects(batch) if shape.value is None else as_text(batch.column(shape.value))
    if shape.key is None:
        return pa.RecordBatch.from_arrays([value], names=["value"])
    return pa.RecordBatch.from_arrays([as_text(batch.column(shape.key)), value], names=["key", "value"])


def as_text(column: pa.Array) -> pa.Array:
    """Return bytes and text as they are, and anything else as its text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if _is_bytes_or_text(kind):
        return column
    if pa.types.is_timestamp(kind):
        is_instant = kind.tz is not None
        utc = column.cast(pa.timestamp(kind.unit, "UTC" if is_instant else None))
        return pc.strftime(utc, format="%Y-%m-%dT%H:%M:%SZ" if is_instant else "%Y-%m-%dT%H:%M:%S")
    return column.cast(pa.string())


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its nulls, as Spark's `to_json` does; bytes are base64."""
    members = [
        pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", _json_texts(column), "").fill_null("")
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    # Not `null_handling="skip"`, and no slice: pyarrow 26 is wrong about rows of which every part is null or empty.
    objects = pc.binary_join_element_wise("{", *members, "}", "")
    return pc.replace_substring(objects, "{,", "{", max_replacements=1).cast(pa.binary())


def _json_texts(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value, null for a null; column by column, since a Python object a value is slow."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json_texts(column.dictionary_decode())
    if _is_json_number(column):
        return column.cast(pa.string())
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return pc.binary_join_element_wise('"', as_text(column), '"', "")
    if _is_plain_text(column):
        escaped = pc.replace_substring(pc.replace_substring(column.cast(pa.string()), "\\", "\\\\"), '"', '\\"')
        return pc.binary_join_element_wise('"', escaped, '"', "")
    return pa.array((None if value is None else _dumps(_finite(value)) for value in column.to_pylist()), pa.string())


def _is_json_number(column: pa.Array) -> bool:
    """Return whether Arrow's text of each value is JSON: numbers, if they are finite, and booleans."""
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind))


def _is_plain_text(column: pa.Array) -> bool:
    """Return whether it is text without control characters."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return pc.any(pc.match_substring_regex(column, "[\\x00-\\x1f]")).as_py() is not True


def _plain(value: object) -> str:
    """Return what JSON has no type for as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _finite(value: object) -> object:
    """Return a value with text in place of the numbers that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[repr(value)]
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items() if each is not None}
    return value


def _is_bytes_or_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_string(kind) or types.is_large_string(kind)
    )


def _files(path: str) -> Iterator[str]:
    system, inner, prefix = _file_system(path)
    info = system.get_file_info(inner)
    if info.type == pafs.FileType.File:
        yield path
        return
    if info.type != pafs.FileType.Directory:
        raise ConfigurationError(f"{path}: no such file")
    inside = system.get_file_info(pafs.FileSelector(inner, recursive=True))
    files = sorted(each.path for each in inside if each.is_file and _is_data(each.path, inner))
    if not files:
        raise ConfigurationError(f"{path}: no file in this folder ends in {', '.join(SUFFIXES)}")
    yield from (prefix + file for file in files)


def _is_data(path: str, folder: str) -> bool:
    """Return whether a file is not one of the hidden ones that Spark and others write beside their data."""
    parts = PurePosixPath(path).relative_to(folder).parts
    return path.lower().endswith(SUFFIXES) and not any(part.startswith(("_", ".")) for part in parts)


def _file_system(path: str) -> tuple[pafs.FileSystem, str, str]:
    """Return the file system of a path, the path there, and what goes before it in a URI.

    Raises:
        ConfigurationError: pyarrow knows no such file system.
    """
    scheme, separator, _ = path.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), path, ""
    try:
        system, inner = pafs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError) as error:
        raise ConfigurationError(f"{path}: {_first_line(error)}") from error
    return system, inner, f"{scheme}://"


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    system, inner, _ = _file_system(path)
    try:
        with system.open_input_file(inner) as file, pq.ParquetFile(file) as parquet:
            yield parquet
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or _first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _check_columns(file: str, schema: pa.Schema, shape: RowShape) -> None:
    for option, name in (("--key", shape.key), ("--value", shape.value)):
        if name is None:
            continue
        if name not in schema.names:
            hint = "; --json makes the value from all columns" if option == "--value" else ""
            raise ConfigurationError(f"{file} has no column {name!r}; it has {', '.join(schema.names)}{hint}")
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise ConfigurationError(f"{file}: {option} {name} is {kind}; --json can send such a column")
