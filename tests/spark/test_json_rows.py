"""The JSON of rows, without Spark; tests/spark/functions/test_json_rows.py compares it with Spark's."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from aioproducer.spark._json_rows import as_text, json_objects

MOMENT = datetime(2026, 11, 26, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "column, texts",
    [
        (pa.array([1, None]), ['{"x":1}', "{}"]),
        (pa.array(['a"b\\c', "é\n"]), ['{"x":"a\\"b\\\\c"}', '{"x":"é\\n"}']),
        (pa.array([1.5, float("nan"), float("-inf")]), ['{"x":1.5}', '{"x":"NaN"}', '{"x":"-Infinity"}']),
        (pa.array([b"\x00\xff"]), ['{"x":"AP8="}']),
        (pa.array([MOMENT], pa.timestamp("s", "America/New_York")), ['{"x":"2026-11-26T05:06:07.000Z"}']),
        (pa.array([date(2026, 1, 2)]), ['{"x":"2026-01-02"}']),
        (pa.array([Decimal("1.20"), None]), ['{"x":1.20}', "{}"]),
        (pa.array([True, False]), ['{"x":true}', '{"x":false}']),
        (pa.array([[1, 2], None]), ['{"x":[1,2]}', "{}"]),
        (pa.array([{"y": 1.0, "z": None}]), ['{"x":{"y":1.0}}']),
        (pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int8())), ['{"x":{"k":1}}', '{"x":{}}', "{}"]),
        (
            pa.array([1.0, 1e7, 1e-4, 5e-324, -0.0]),
            [f'{{"x":{n}}}' for n in ("1.0", "1.0E7", "1.0E-4", "4.9E-324", "-0.0")],
        ),
        (pa.array(["p", None, "p"]).dictionary_encode(), ['{"x":"p"}', "{}", '{"x":"p"}']),
    ],
)
def test_json_of_each_type(column: pa.Array, texts: list[str]) -> None:
    """Without nulls, and valid as JSON."""
    found = [value.decode() for value in json_objects(pa.record_batch({"x": column})).to_pylist()]

    assert found == texts
    assert all(isinstance(json.loads(text), dict) for text in found)


def test_rows_of_a_slice_keep_their_nested_values() -> None:
    """Arrow's own accessors of maps ignore where a slice begins."""
    maps = pa.array([[("a", [1])], [("b", [2, None])], None, [("c", None)]], pa.map_(pa.string(), pa.list_(pa.int8())))
    batch = pa.record_batch({"m": maps}).slice(1)

    assert [each.decode() for each in json_objects(batch).to_pylist()] == [
        '{"m":{"b":[2,null]}}',
        "{}",
        '{"m":{"c":null}}',
    ]


@pytest.mark.parametrize(
    "column, texts",
    [
        (pa.array([Decimal(0), Decimal("1E-7"), None], pa.decimal128(38, 10)), ["0.0000000000", "0.0000001000", None]),
        (
            pa.array([Decimal("-1E-30"), Decimal("12.5")], pa.decimal256(60, 31)),
            [f"-0.{'0' * 29}10", f"12.5{'0' * 30}"],
        ),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.array([b"\xff\x00", None], pa.binary(2)), [b"\xff\x00", None]),
        (pa.array([b"\xff", None], pa.binary_view()), [b"\xff", None]),
        (pa.array(["x"], pa.string_view()), ["x"]),
        (pa.array([timedelta(days=1), None]), ["86400000000", None]),
        (pa.array([UUID(int=5), None], pa.uuid()), ["00000000-0000-0000-0000-000000000005", None]),
        (pa.array([1, None], pa.bool8()), ["1", None]),
        (pa.array([b"\xff", b"\xff"]).dictionary_encode(), [b"\xff", b"\xff"]),
    ],
)
def test_text_of_each_type_is_that_of_a_cast(column: pa.Array, texts: list[object]) -> None:
    """Bytes stay as they are; a decimal has no exponent."""
    assert as_text(column).to_pylist() == texts


def test_json_of_decimals_has_their_exponents() -> None:
    """As Spark writes them, as keys of maps too."""
    small = pa.array([Decimal(0)], pa.decimal128(38, 10))
    keys = pa.array([[(Decimal(0), 1)]], pa.map_(pa.decimal128(38, 10), pa.int8()))
    assert json_objects(pa.record_batch({"x": small, "m": keys})).to_pylist() == [b'{"x":0E-10,"m":{"0E-10":1}}']


def test_text_of_numbers_and_times_is_that_of_a_cast() -> None:
    assert as_text(pa.array([1.0, 2.5, None])).to_pylist() == ["1.0", "2.5", None]
    assert as_text(pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo"))).to_pylist() == ["2026-11-26 05:06:07"]
