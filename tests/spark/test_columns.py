"""Columns of a write: those that cannot be sent are refused on the driver, by name and type."""

import re
from dataclasses import dataclass

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._columns import sink_columns
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns

HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class Kind:
    """Stands in for a type of pyspark's."""

    text: str

    def simpleString(self) -> str:  # noqa: N802  # pyspark's name
        """Return the type as SQL names it."""
        return self.text


@dataclass
class Column:
    """Stands in for a column of pyspark's."""

    name: str
    dataType: Kind  # noqa: N815  # pyspark's name


@dataclass
class Columns:
    """Stands in for pyspark's `StructType`."""

    fields: list[Column]


def checked(*columns: tuple[str, str], **options: str) -> SinkColumns:
    """Check columns against the options of a write."""
    parsed = SinkOptions.parse({"kafka.bootstrap.servers": "b1:9092", "topic": "t", **options})
    return sink_columns(Columns([Column(name, Kind(kind)) for name, kind in columns]), parsed)


WRONG = {
    "no value": ([("key", "string")], "column 'value' is missing; the columns are key"),
    "no columns": ([], "column 'value' is missing; the columns are none"),
    "value": ([("value", "bigint")], "column 'value' is bigint: it must be binary or string, as with CAST(CAST("),
    "key": ([("value", "binary"), ("key", "int")], "column 'key' is int: it must be binary or string"),
    "partition": ([("value", "binary"), ("partition", "bigint")], "column 'partition' is bigint: it must be int"),
    "timestamp": ([("value", "binary"), ("timestamp", "timestamp_ntz")], "as with CAST(x AS TIMESTAMP)"),
    "headers": ([("value", "binary"), ("headers", "map<string,binary>")], "it must be array<struct<key: string"),
    "extra": ([("value", "binary"), ("id", "int")], "column 'id' is none of value, key, topic"),
    "upper case": ([("value", "binary"), ("Key", "binary")], "column 'Key' is none of"),
    "twice": ([("value", "binary"), ("value", "binary")], "column 'value' stands twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_column_is_named(case: str) -> None:
    """With its type, and what is allowed."""
    columns, said = WRONG[case]
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        checked(*columns)


def test_all_columns() -> None:
    """The option topic wins over a column, as in Spark's own sink."""
    found = checked(
        *[("value", "string"), ("key", "binary"), ("topic", "string")],
        *[("partition", "int"), ("timestamp", "timestamp"), ("headers", HEADERS)],
    )
    assert found.present == {"value", "key", "partition", "timestamp", "headers"}
    assert not found.has_seconds


def test_seconds() -> None:
    """A timestamp may be a number."""
    assert checked(("value", "binary"), ("timestamp", "double")).has_seconds


def test_collated_text() -> None:
    """Is text."""
    assert "value" in checked(("value", "string collate UNICODE"))


def test_other_columns_on_request() -> None:
    """Are left out."""
    assert checked(("value", "binary"), ("id", "int"), extraColumns="ignore").present == {"value"}


def test_no_topic() -> None:
    """Neither as an option nor as a column."""
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b1:9092"})
    with pytest.raises(ConfigurationError, match="no topic: give the option topic, or a column topic"):
        sink_columns(Columns([Column("value", Kind("binary"))]), options)


def test_decision_needs_a_topic() -> None:
    """Where topics come from a column."""
    given = {"kafka.bootstrap.servers": "b1:9092", "exactlyOnce": "true", "sinkId": "s"}
    columns = Columns([Column("value", Kind("binary")), Column("topic", Kind("string"))])
    with pytest.raises(ConfigurationError, match="needs decisionTopic"):
        sink_columns(columns, SinkOptions.parse(given))
    assert "topic" in sink_columns(columns, SinkOptions.parse({**given, "decisionTopic": "d"}))


def test_constant_headers_and_a_column() -> None:
    """Do not go together."""
    with pytest.raises(ConfigurationError, match=r"header\.<name> cannot be added to a column headers"):
        checked(("value", "binary"), ("headers", HEADERS), **{"header.a": "b"})
