"""The columns of a read are Spark's own, and no others can be given."""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aioproducer.spark._source import AioproducerDataSource

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
KINDS = ["binary", "binary", "string", "int", "bigint", "timestamp", "int"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes end with the variable; this one does not."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def source(**options: str) -> "AioproducerDataSource":
    from aioproducer.spark._source import AioproducerDataSource  # noqa: PLC0415  # needs pyspark

    return AioproducerDataSource({"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options})


def struct(names: Sequence[str], kinds: Sequence[str], *, nullable: bool = True) -> "StructType":
    from pyspark.sql.types import _parse_datatype_json_value  # noqa: PLC0415  # needs pyspark

    of_json = {"int": "integer", "bigint": "long"}
    fields = [
        {"name": name, "type": of_json.get(kind, kind), "nullable": nullable, "metadata": {}}
        for name, kind in zip(names, kinds, strict=True)
    ]
    found: StructType = _parse_datatype_json_value({"type": "struct", "fields": fields})
    return found


def test_columns_are_those_of_sparks_source() -> None:
    """The type of the timestamp is no word, which a setting of the session would read in its own way."""
    assert source().schema() == struct(COLUMNS, KINDS)
    with_headers = source(includeHeaders="true").schema()
    assert with_headers.names == [*COLUMNS, "headers"]
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


WRONG = {
    "one": (["value"], ["binary"]),
    "another type": (COLUMNS, ["binary", "string", *KINDS[2:]]),
    "another order": ([COLUMNS[1], COLUMNS[0], *COLUMNS[2:]], KINDS),
    "timestamp without a zone": (COLUMNS, [*KINDS[:5], "timestamp_ntz", "int"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_columns_are_refused_on_the_driver(case: str) -> None:
    given = struct(*WRONG[case])
    said = r"^schema\(...\): the columns of a read are key binary, value binary.*cast after load\(\)$"
    with pytest.raises(ConfigurationError, match=said):
        source().reader(given)
    with pytest.raises(ConfigurationError, match=said):
        source().streamReader(given).initialOffset()


def test_columns_that_are_given_as_they_are_may_be() -> None:
    """Whether null may be in them is no matter."""
    given = struct(COLUMNS, KINDS, nullable=False)
    source().reader(given)
    source().streamReader(given)
