"""Parquet files as row groups, read with pyarrow and made into records: the input of `aioproducer load`.

A task reads its row groups itself: the JVM would decode them to rows, and then make columns of the rows again.
Needs no pyspark.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from aioproducer.errors import ConfigurationError
from aioproducer.spark._json_rows import as_text, json_objects
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
        with_instants = _with_instants(parquet)
        for batch in parquet.iter_batches(batch_rows, row_groups=[row_group], columns=columns):
            schema = pa.schema([with_instants.field(name) for name in batch.schema.names])
            yield shaped(batch if batch.schema.equals(schema) else batch.cast(schema), shape)


def _with_instants(parquet: pq.ParquetFile) -> pa.Schema:
    """Return a file's schema in which times of the type INT96 are instants, as for Spark, which writes such by default.

    Arrow takes them for local times.
    """
    leaves = iter(parquet.schema.column(number) for number in range(len(parquet.schema)))
    return pa.schema([field.with_type(_instants_in(field.type, leaves)) for field in parquet.schema_arrow])


def _instants_in(kind: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """Return a type with its INT96 times as instants; takes the columns of its parts, which are in their order."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_instants_in(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_instants_in(kind.key_type, leaves)),
            kind.item_field.with_type(_instants_in(kind.item_type, leaves)),
        )
    if pa.types.is_nested(kind):  # lists
        item = kind.value_field.with_type(_instants_in(kind.value_type, leaves))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    is_instant = next(leaves).physical_type == "INT96"
    return pa.timestamp("us", "UTC") if is_instant else kind


def shaped(batch: pa.RecordBatch, shape: RowShape) -> pa.RecordBatch:
    """Return the records of rows."""
    value = json_objects(batch) if shape.value is None else as_text(batch.column(shape.value))
    if shape.key is None:
        return pa.RecordBatch.from_arrays([value], names=["value"])
    return pa.RecordBatch.from_arrays([as_text(batch.column(shape.key)), value], names=["key", "value"])


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
        with system.open_input_file(inner) as file, pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
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
