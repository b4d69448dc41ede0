"""Columns of a DataFrame that is written: Spark's own names and types for Kafka, checked on the driver. No I/O."""

from collections.abc import Sequence
from typing import Final, Protocol

from aioproducer.errors import ConfigurationError
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import RowShape, SinkColumns


class ColumnType(Protocol):
    """A type of pyspark's."""

    def simpleString(self) -> str:  # noqa: N802  # pyspark's name
        """Return the type as SQL names it."""


class Field(Protocol):
    """A column of pyspark's `StructType`."""

    name: str
    dataType: ColumnType  # noqa: N815  # pyspark's name


class FrameSchema(Protocol):
    """The columns of a DataFrame: pyspark's `StructType`, which is not imported here."""

    fields: Sequence[Field]


_ALLOWED: Final[dict[str, tuple[frozenset[str], str]]] = {
    "value": (frozenset({"binary", "string"}), "binary or string"),
    "key": (frozenset({"binary", "string"}), "binary or string"),
    "topic": (frozenset({"string"}), "string"),
    "partition": (frozenset({"int"}), "int"),
    "timestamp": (frozenset({"timestamp", "double"}), "timestamp, or double of seconds since 1970"),
    "headers": (
        frozenset({"array<struct<key:string,value:binary>>"}),
        "array<struct<key: string, value: binary>>",
    ),
}
_CURES: Final = {
    "value": ", as with CAST(CAST(x AS STRING) AS BINARY), or to_json(struct(...))",
    "key": ", as with CAST(CAST(x AS STRING) AS BINARY)",
    "partition": ", as with CAST(x AS INT)",
    "timestamp": ", as with CAST(x AS TIMESTAMP)",
}

SPLIT_COLUMNS: Final = ["path", "row_group"]
"""Columns of a DataFrame that `aioproducer load` writes with `input=splits`."""


def sink_columns(schema: FrameSchema, options: SinkOptions) -> SinkColumns:
    """Return the columns of what is written.

    Raises:
        ConfigurationError: `value` is missing, a column has a type that cannot be sent, is unknown, or stands twice;
            or no topic is given.
    """
    names = [field.name for field in schema.fields]
    if options.input is not None:
        return _columns_of_splits(names, options.input)
    _check_types(schema, options)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"column {twice[0]!r} stands twice")
    if "value" not in names:
        raise ConfigurationError(
            f"column 'value' is missing; the columns are {', '.join(names) or 'none'}. Name one so, as with "
            "select(to_json(struct('*')).alias('value'))"
        )
    if options.topic is None and "topic" not in names:
        raise ConfigurationError("no topic: give the option topic, or a column topic", option="topic")
    if options.exactly_once:
        _ = options.topic_of_decision  # raises if there is none
    if options.headers and "headers" in names:
        raise ConfigurationError("header.<name> cannot be added to a column headers: put it there", option="header.*")
    present = frozenset(names) & frozenset(_ALLOWED)
    if options.topic is not None:
        present -= {"topic"}  # the option wins, as in Spark's own sink
    kinds = {field.name: _named(field) for field in schema.fields}
    return SinkColumns(present, has_seconds=kinds.get("timestamp") == "double")


def _columns_of_splits(names: list[str], shape: RowShape) -> SinkColumns:
    if names != SPLIT_COLUMNS:
        raise ConfigurationError("input=splits is for the rows of `aioproducer load`", option="input")
    return shape.columns


def _check_types(schema: FrameSchema, options: SinkOptions) -> None:
    for field in schema.fields:
        _check_column(field.name, _named(field), options)


def _named(field: Field) -> str:
    """Return the type of a column; a collation says how text is compared, which does not matter here."""
    return field.dataType.simpleString().partition(" collate ")[0]


def _check_column(name: str, kind: str, options: SinkOptions) -> None:
    if name not in _ALLOWED:
        if not options.ignores_extra_columns:
            raise ConfigurationError(
                f"column {name!r} is none of {', '.join(_ALLOWED)}: drop it, put it into the value, or give "
                "extraColumns=ignore",
                option="extraColumns",
            )
        return
    allowed, words = _ALLOWED[name]
    if kind not in allowed:
        cure = _CURES.get(name, "")
        raise ConfigurationError(f"column {name!r} is {kind}: it must be {words}{cure}")
