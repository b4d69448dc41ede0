"""`load --json` writes what Spark's own `to_json` writes of the same file; `--key` and `--value` are as a cast."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import records_of

BEFORE = datetime(1969, 12, 31, 23, 59, 59, 1)  # noqa: DTZ001  # a local time
LOCAL = datetime(2026, 1, 2, 3, 4, 5, 123456)  # noqa: DTZ001
NUMBERS = [0.0, -0.0, 1.0, 0.1, 0.001, 9.999e-4, 123.456, 9999999.0, 1e7, 12345678.9, 1e20, 1e-7, 1.5e300, 5e-324]
CONTROLS = "".join(map(chr, range(0x20)))

COLUMNS = {
    "whole": pa.array([1, None, -128], pa.int8()),
    "unsigned": pa.array([1, None, 2**63 + 5], pa.uint64()),
    "single": pa.array([0.1, float("nan"), 1e10], pa.float32()),
    "double": pa.array([1.5, float("inf"), float("-inf")]),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("0.00")], pa.decimal128(10, 2)),
    "small": pa.array([Decimal("1E-10"), Decimal("1E-6"), Decimal(12345678)], pa.decimal128(38, 10)),
    "boolean": pa.array([True, False, None]),
    "text": pa.array(['a"b\\/\x7f', "é\u2028😀", CONTROLS]),
    "bytes": pa.array([b"\x00\xff", b"", None]),
    "date": pa.array([date(2026, 1, 2), date(1, 1, 1), date(9999, 12, 31)]),
    "instant": pa.array([LOCAL, BEFORE, None], pa.timestamp("us", "UTC")),
    "local": pa.array([LOCAL, BEFORE, datetime(2026, 1, 2)], pa.timestamp("us")),  # noqa: DTZ001
    "milliseconds": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None, None], pa.timestamp("ms", "UTC")),
    "map": pa.array([[("k", 1)], [], [('a"', None), ("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "of numbers": pa.array([[(1, "x")], None, [(2, None)]], pa.map_(pa.int32(), pa.string())),
    "of dates": pa.array([[(date(2026, 1, 2), 1.0)], [], None], pa.map_(pa.date32(), pa.float32())),
    "struct": pa.array(
        [{"x": 1, "y": None}, {"x": None, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])
    ),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "numbers": pa.array([NUMBERS, [], None], pa.list_(pa.float64())),
    "singles": pa.array([NUMBERS, [1e-45], None], pa.list_(pa.float32())),
    "times": pa.array([[LOCAL], [None], None], pa.list_(pa.timestamp("us", "UTC"))),
    "deep": pa.array(
        [[[("k", {"z": Decimal("1.10"), "b": b"\x01"})]], [None], None],
        pa.list_(pa.map_(pa.string(), pa.struct([("z", pa.decimal128(5, 2)), ("b", pa.binary())]))),
    ),
    "dictionary": pa.array(["p", "q", None]).dictionary_encode(),
    "duration": pa.array([timedelta(days=1), None, None], pa.duration("us")),
    'a"\t': pa.array([1, 2, 3]),
}


def test_json_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(COLUMNS), file)

    assert ours(file, RowShape(None, None)) == of_spark(spark, file, "to_json(struct(*))")


def test_json_of_a_file_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """By default with times of the type INT96, which are instants."""
    file = tmp_path / "by_spark"
    times = "array(at, NULL) AS times, map('k', at) AS m, struct(at, 1 AS x) AS s"
    spark.sql(f"SELECT *, {times} FROM VALUES (TIMESTAMP '2026-01-02 03:04:05.123456'), (NULL) AS t(at)").coalesce(
        1
    ).write.parquet(str(file))
    [part] = map(str, file.glob("*.parquet"))

    assert pq.read_metadata(part).schema.column(0).physical_type == "INT96"
    assert ours(part, RowShape(None, None)) == of_spark(spark, part, "to_json(struct(*))")


def test_key_and_value_are_those_of_a_cast(spark: SparkSession, tmp_path: Path) -> None:
    file = str(tmp_path / "a.parquet")
    names = ["whole", "single", "double", "boolean", "text", "date", "instant", "local"]
    names += ["decimal", "small", "duration"]
    pq.write_table(pa.table({name: COLUMNS[name] for name in names}), file)
    casts = ", ".join(f"CAST({name} AS STRING)" for name in names)
    by_column = [ours(file, RowShape(None, name)) for name in names]

    assert list(zip(*by_column, strict=True)) == [tuple(row) for row in of_spark(spark, file, f"struct({casts})")]


def ours(file: str, shape: RowShape) -> list[str | None]:
    found = [value for batch in records_of(file, 0, shape) for value in batch.column("value").to_pylist()]
    return [value.decode() if isinstance(value, bytes) else value for value in found]


def of_spark(spark: SparkSession, file: str, expression: str) -> list[object]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # that of the session of a load
    try:
        return [row[0] for row in spark.read.parquet(file).select(f.expr(expression)).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
