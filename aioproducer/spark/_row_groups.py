"""Parquet files as row groups, read with pyarrow and made into records: the input of `aioproducer load`.

A task reads its row groups itself: the JVM would decode them to rows, and then make columns of the rows again.
Needs no pyspark.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import quote

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
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_OF_URIS: Final = "%/:?#[]@!$&'()*+,;="
"""Characters with a meaning in a URI, and those of an escape; any other that is no letter or digit is escaped."""


_SECRET_OF_URI: Final = re.compile(r"(?<=://)[^/@\s']*(?=@)|(?<=[?&])((?:client_secret|account_key|sig)=)[^&\s']*")


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
        ConfigurationError: a file is missing, is not Parquet, or lacks a column, or has one twice; or a column is in
            the names of folders alone.
    """
    found: list[Split] = []
    for path in paths:
        for file in _files(path, shape):
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
            try:
                records = shaped(batch if batch.schema.equals(schema) else batch.cast(schema), shape)
            except pa.ArrowException as error:
                raise _wrong_input(f"{path}: a column cannot be sent as text: {_first_line(error)}") from error
            yield records


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


def _files(path: str, shape: RowShape) -> Iterator[str]:
    system, inner = _file_system(path)
    try:
        info = system.get_file_info(inner)
        parts: list[tuple[str, ...]] = []
        if info.type == pafs.FileType.Directory:
            inside = system.get_file_info(pafs.FileSelector(inner, recursive=True))
            parts = [PurePosixPath(each.path).relative_to(inner).parts for each in inside if each.is_file]
    except OSError as error:
        raise _wrong_input(f"{path}: {error.strerror or _first_line(error)}") from error
    except UnicodeDecodeError:
        raise _wrong_input(f"{path}: a name in this folder is not UTF-8") from None
    if info.type == pafs.FileType.File:
        yield path
        return
    if info.type != pafs.FileType.Directory:
        raise _wrong_input(f"{path}: no such file")
    found = sorted(filter(_is_data, parts), key="/".join)
    if not found:
        raise _wrong_input(f"{path}: no file in this folder ends in {', '.join(SUFFIXES)}")
    _check_partitions(path, found, shape)
    for each in found:
        yield _inside(path, each)


def _inside(path: str, parts: Sequence[str]) -> str:
    """Return the path, or the URI, of a file in a folder."""
    if _URI.match(path) is None:
        return str(PurePosixPath(path, *parts))
    folder, mark, query = path.partition("?")
    return "/".join([folder.rstrip("/"), *(quote(part, safe="") for part in parts)]) + mark + query


def _is_data(parts: Sequence[str]) -> bool:
    """Return whether a file is not one of the hidden ones that Spark and others write beside their data.

    Source: org.apache.spark.util.HadoopFSUtils.shouldFilterOutPathName.
    """
    hidden = any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)
    return parts[-1].lower().endswith(SUFFIXES) and not hidden


def _check_partitions(path: str, files: Iterable[Sequence[str]], shape: RowShape) -> None:
    """Raise a ConfigurationError if a record needs a column that Spark makes of the names of folders: `day=2026-01-01`.

    Spark takes its type from all of the names, and looks for columns without regard to case.
    """
    needed = None if shape.value is None else {name.casefold() for name in shape if name is not None}
    for folder in (part for parts in files for part in parts[:-1] if "=" in part):
        name = folder.partition("=")[0]
        if needed is None or name.casefold() in needed:
            raise _wrong_input(
                f"{path}: the folder {folder!r} has a column {name!r} in its name, which is not in its files. Spark "
                "reads such columns: give --master, such as 'local[*]', and --sql, whose table input has them"
            )


def _file_system(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path there.

    Raises:
        ConfigurationError: pyarrow knows no such file system.
    """
    if _URI.match(path) is None:
        # What looks like a scheme is a part of a name.
        return pafs.LocalFileSystem(), f"./{path}" if ":" in path and not path.startswith("/") else path
    try:
        system, inner = pafs.FileSystem.from_uri(quote(path, safe=_OF_URIS))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _wrong_input(f"{path}: {_first_line(error)}") from None  # it may hold a key
    return system, inner


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    system, inner = _file_system(path)
    try:
        with system.open_input_file(inner) as file, pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            yield parquet
    except FileNotFoundError:
        raise _wrong_input(f"{path}: no such file") from None
    except pa.ArrowException as error:
        raise _wrong_input(f"{path} cannot be read as Parquet: {_first_line(error)}") from error
    except OSError as error:
        raise _wrong_input(f"{path}: {error.strerror or _first_line(error)}") from error


def _wrong_input(text: str) -> ConfigurationError:
    """Return an error with a text that may have URIs in it; those lose the keys that they may have."""
    return ConfigurationError(_SECRET_OF_URI.sub(lambda found: f"{found[1] or ''}***", text))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _check_columns(file: str, schema: pa.Schema, shape: RowShape) -> None:
    if shape.value is None:
        _check_names(file, schema)
    for option, name in (("--key", shape.key), ("--value", shape.value)):
        if name is None:
            continue
        if name not in schema.names:
            hint = "; --json makes the value from all columns" if option == "--value" else ""
            raise _wrong_input(f"{file} has no column {name!r}; it has {', '.join(schema.names)}{hint}")
        if schema.names.count(name) > 1:
            raise _wrong_input(f"{file}: {option} {name}: more than one column has this name")
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise _wrong_input(f"{file}: {option} {name} is {kind}; --json can send such a column")


def _check_names(file: str, fields: Iterable[pa.Field]) -> None:
    """Raise a ConfigurationError if two columns, or two parts of one, have a name: JSON holds one of them."""
    inside = [fields]
    while inside:
        part = list(inside.pop())
        name, count = Counter(field.name for field in part).most_common(1)[0] if part else ("", 0)
        if count > 1:
            raise _wrong_input(f"{file}: --json cannot send it: {count} columns have the name {name!r}")
        inside += [_parts_of(field.type) for field in part]


def _parts_of(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if pa.types.is_struct(kind):
        return list(kind)
    return [kind.value_field] if pa.types.is_nested(kind) and kind.num_fields == 1 else []
