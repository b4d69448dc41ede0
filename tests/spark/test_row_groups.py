"""Rows of Parquet files as records, without Spark."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as pafs

from aioproducer.errors import ConfigurationError
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import _inside, find_splits, records_of, rows_of_splits, shaped


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


ALL = RowShape(None, None)


def put(file: Path, **columns: object) -> Path:
    """Write a file of one row group, and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1], **columns}), file)
    return file


@pytest.mark.parametrize("folder", ["day=2026-01-01", "a/day=1/hour=2", "_day=1", "day="])
def test_folder_that_spark_takes_for_partitioned_is_refused(tmp_path: Path, folder: str) -> None:
    """The columns in the names would be missing in the records; one of the folders itself is a folder as others."""
    file = put(tmp_path / "input" / folder / "part-0.parquet")
    name = "_day" if folder.startswith("_") else "day"
    for shape in (ALL, RowShape(name.upper(), "id"), RowShape(None, name), RowShape("id", None)):
        with pytest.raises(ConfigurationError, match=f"has a column '{name}' in its name, .* give --master"):
            find_splits([str(tmp_path / "input")], shape)
    assert len(find_splits([str(tmp_path / "input")], RowShape("id", "id"))) == 1  # no record needs it
    assert len(find_splits([str(file)], ALL)) == 1
    assert len(find_splits([str(file.parent)], ALL)) == 1


def test_hidden_files_are_those_of_spark(tmp_path: Path) -> None:
    for name in ("_temporary/0/a.parquet", ".b.parquet", "_metadata.parquet", "_c=1.parquet", "d=1.parquet"):
        put(tmp_path / name)
    found = [Path(split.path).name for split in find_splits([str(tmp_path)], ALL)]
    assert found == ["_c=1.parquet", "d=1.parquet"]


NAMES = ["New York", "München", "100%", "%41", "a?b#c", "a:b", "a+b&c;d", "'q'"]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_found_under_any_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By path, by URI, and in a folder that is given by either."""
    file = put(tmp_path / "in" / name / f"{name}.parquet")
    monkeypatch.chdir(file.parent)
    folder = f"file://{tmp_path}/in"
    for path in (str(file), file.as_uri(), str(tmp_path / "in"), folder, f"{folder}/", f"{name}.parquet"):
        [split] = find_splits([path], ALL)
        [records] = records_of(split.path, 0, ALL)
        assert records.column("value").to_pylist() == [b'{"id":1}']


def test_uri_may_have_blanks_and_other_letters(tmp_path: Path) -> None:
    """As people type it; and one slash behind the scheme, as Java writes it."""
    put(tmp_path / "New München" / "a.parquet")
    for uri in (f"file://{tmp_path}/New München", f"file:{tmp_path}/New%20M%C3%BCnchen"):
        assert [split.rows for split in find_splits([uri], ALL)] == [1]


def test_uri_of_a_file_in_a_folder_keeps_server_and_query() -> None:
    """The tasks open it as the folder was opened."""
    uri = _inside("s3://k:s@bucket/in?region=eu-west-1&endpoint_override=h:9000", ("a b", "c%.parquet"))
    assert uri == "s3://k:s@bucket/in/a%20b/c%25.parquet?region=eu-west-1&endpoint_override=h:9000"
    assert pafs.FileSystem.from_uri(uri)[1] == "bucket/in/a b/c%.parquet"
    assert _inside("hdfs://name:8020/in/", ("a.parquet",)) == "hdfs://name:8020/in/a.parquet"


@pytest.mark.parametrize("path", ["nowhere:/a", "file:///nowhere", "file:/nowhere", "a:b", "file://h/a"])
def test_wrong_uri_is_a_wrong_input(path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{path}: "):
        find_splits([path], ALL)


@pytest.mark.parametrize(
    "uri", ["s3://id:canary@bucket/100%", "nowhere://:canary@h/a", "nowhere://h/a?client_secret=canary&b=c"]
)
def test_keys_in_a_uri_are_not_shown(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"[*]{3}") as caught:
        find_splits([uri], ALL)
    assert "canary" not in str(caught.value)


def test_name_in_a_folder_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "\udcff.parquet").touch()
    with pytest.raises(ConfigurationError, match="a name in this folder is not UTF-8"):
        find_splits([str(tmp_path)], ALL)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """As Spark refuses them, where they are sent; also inside a column."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    inside = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    put(tmp_path / "inside.parquet", s=pa.ListArray.from_arrays([0, 1], inside))
    for file in ("twice.parquet", "inside.parquet"):
        with pytest.raises(ConfigurationError, match="--json cannot send it: 2 columns have the name 'a'"):
            find_splits([str(tmp_path / file)], ALL)
    with pytest.raises(ConfigurationError, match="--value a: more than one column has this name"):
        find_splits([str(tmp_path / "twice.parquet")], RowShape(None, "a"))
    assert len(find_splits([str(tmp_path / "twice.parquet")], RowShape(None, "b"))) == 1
    [records] = records_of(str(tmp_path / "twice.parquet"), 0, RowShape("b", "b"))
    assert records.to_pydict() == {"key": ["3"], "value": ["3"]}


@pytest.mark.parametrize(
    "column",
    [pa.array([b"\xff\xfe"], pa.binary(2)), pa.array([b"\xff\xfe"], pa.binary_view())],
    ids=["fixed size", "view"],
)
def test_bytes_of_any_kind_are_keys_and_values(tmp_path: Path, column: pa.Array) -> None:
    file = str(put(tmp_path / "a.parquet", value=column))
    [records] = records_of(file, 0, RowShape("value", "value"))
    assert records.to_pydict() == {"key": [b"\xff\xfe"], "value": [b"\xff\xfe"]}
