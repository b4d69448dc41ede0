"""Rows of Parquet files as records, without Spark."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import find_splits, records_of, rows_of_splits, shaped


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


@pytest.mark.parametrize("as_int96", [True, False])
def test_int96_times_are_instants(tmp_path: Path, *, as_int96: bool) -> None:
    """Spark writes such by default; anywhere in a column, and far from 1970. Other times without a zone are local."""
    file, before = str(tmp_path / "a.parquet"), datetime(1600, 1, 2, 3, 4, 5, 6000)  # noqa: DTZ001  # as Arrow reads it
    nested = pa.map_(pa.string(), pa.list_(pa.struct([("n", pa.int32()), ("t", pa.timestamp("us"))])))
    table = pa.table(
        {
            "before": pa.array([7]),
            "at": pa.array([before], pa.timestamp("us")),
            "in": pa.array([[("k", [{"n": 1, "t": before}])]], nested),
        }
    )
    pq.write_table(table, file, use_deprecated_int96_timestamps=as_int96)
    zone = "Z" if as_int96 else ""
    [objects] = records_of(file, 0, RowShape(None, None))
    [texts] = records_of(file, 0, RowShape("before", "at"))

    at = f'"1600-01-02T03:04:05.006{zone}"'
    assert objects.column("value").to_pylist() == [
        f'{{"before":7,"at":{at},"in":{{"k":[{{"n":1,"t":{at}}}]}}}}'.encode()
    ]
    assert texts.to_pydict() == {"key": ["7"], "value": ["1600-01-02 03:04:05.006"]}
