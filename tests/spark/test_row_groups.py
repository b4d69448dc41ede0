"""Rows of Parquet files as records, without Spark."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import find_splits, json_objects, rows_of_splits, shaped

MOMENT = datetime(2026, 11, 26, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "column, texts",
    [
        (pa.array([1, None]), ['{"x":1}', "{}"]),
        (pa.array(['a"b\\c', "é\n"]), ['{"x":"a\\"b\\\\c"}', '{"x":"é\\n"}']),
        (pa.array([1.5, float("nan"), float("-inf")]), ['{"x":1.5}', '{"x":"NaN"}', '{"x":"-Infinity"}']),
        (pa.array([b"\x00\xff"]), ['{"x":"AP8="}']),
        (pa.array([MOMENT], pa.timestamp("s", "America/New_York")), ['{"x":"2026-11-26T05:06:07Z"}']),
        (pa.array([date(2026, 1, 2)]), ['{"x":"2026-01-02"}']),
        (pa.array([Decimal("1.20"), None]), ['{"x":1.20}', "{}"]),
        (pa.array([True, False]), ['{"x":true}', '{"x":false}']),
        (pa.array([[1, 2], None]), ['{"x":[1,2]}', "{}"]),
        (pa.array([{"y": 1.0, "z": None}]), ['{"x":{"y":1.0}}']),
        (pa.array(["p", None, "p"]).dictionary_encode(), ['{"x":"p"}', "{}", '{"x":"p"}']),
    ],
)
def test_json_of_each_type(column: pa.Array, texts: list[str]) -> None:
    """Without nulls, and valid as JSON."""
    found = [value.decode() for value in json_objects(pa.record_batch({"x": column})).to_pylist()]

    assert found == texts
    assert all(isinstance(json.loads(text), dict) for text in found)


def test_other_types_become_text() -> None:
    """Keys and values of any type; a null stays one."""
    rows = pa.record_batch({"k": pa.array([7, None]), "v": pa.array([0.5, 1.5])})
    records = shaped(rows, RowShape("k", "v"))

    assert records.to_pydict() == {"key": ["7", None], "value": ["0.5", "1.5"]}


def test_row_groups_come_back_as_they_were_written(tmp_path: Path) -> None:
    """In the order in which the rows (path, row_group) name them."""
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"value": list(range(10))}), file, row_group_size=4)
    splits = find_splits([file], RowShape(None, "value"))
    wanted = pa.record_batch({"path": [file, file], "row_group": [2, 0]})
    found = pa.Table.from_batches(rows_of_splits(iter([wanted]), RowShape(None, "value")))

    assert [(split.row_group, split.rows) for split in splits] == [(0, 4), (1, 4), (2, 2)]
    assert found.column("value").to_pylist() == ["8", "9", "0", "1", "2", "3"]


def test_nested_column_is_refused_but_by_json(tmp_path: Path) -> None:
    """It has no text of its own."""
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"value": [[1]]}), file)

    with pytest.raises(ConfigurationError, match=r"--value value is list.*--json can send"):
        find_splits([file], RowShape(None, "value"))
    assert find_splits([file], RowShape(None, None))[0].rows == 1
