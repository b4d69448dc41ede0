"""`aioproducer load --master` in the session of all tests: every format of Spark, queries, dry runs, reports, rates."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from aioproducer.cli.main import command_line
from aioproducer.spark import _load_spark
from tests.spark.functions.conftest import Record, Topics

ROWS = 60


class Terminal(io.StringIO):
    """Keeps what a terminal would show."""

    def isatty(self) -> bool:
        return True


class Load:
    """The command, in this process and in the session of all tests, into a topic of the test's own.

    Args:
        spark: the session.
        topics: on the embedded cluster.
        folder: for files.
    """

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topic = topics.create_own()
        self._topics = topics
        self._folder = folder

    def orders(self, file_format: str) -> str:
        """Write a folder of orders, and return its path."""
        rows = self.spark.range(0, ROWS, 1, 3).selectExpr(
            "id", "'c' || (id % 9) AS customer", "NULLIF(id % 2, 0) AS note"
        )
        path = str(self._folder / "orders")
        rows.write.format(file_format).option("header", "true").save(path)
        return path

    def run(self, *arguments: str, on_terminal: bool = False) -> tuple[int, str]:
        """Return the exit code and what the command says."""
        connection = ["--topic", self.topic, "-b", self._topics.servers, "--master", "local[2,4]"]
        errors = Terminal() if on_terminal else io.StringIO()
        with pytest.raises(SystemExit) as ended, redirect_stderr(errors):
            command_line(["load"])(["load", *arguments, *connection])
        assert isinstance(ended.value.code, int)
        return ended.value.code, errors.getvalue().strip()

    def records(self) -> list[Record]:
        return self._topics.records(self.topic)

    def values(self) -> list[str]:
        return self._topics.values(self.topic)


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command take the session of all tests for one that it has started."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(_load_spark, "session", session)


@pytest.fixture
def load(spark: SparkSession, embedded_topics: Topics, tmp_path: Path) -> Load:
    return Load(spark, embedded_topics, tmp_path)


@pytest.mark.parametrize("file_format", ["csv", "json", "orc"])
def test_columns_of_each_format_become_keys_and_values(load: Load, file_format: str) -> None:
    """A number as its text; the first line of a CSV file has the names."""
    code, said = load.run(load.orders(file_format), "--format", file_format, "--key", "customer", "--value", "id")
    assert (code, said[:31]) == (0, "aioproducer: 60 records deliver")
    records = load.records()
    assert sorted(int(record.value or b"") for record in records) == list(range(ROWS))
    assert all(record.key == b"c%d" % (int(record.value or b"") % 9) for record in records)


def test_answer_of_a_query_is_loaded(load: Load, tmp_path: Path) -> None:
    """It calls the files `input`; a value is the row as JSON without its nulls; the report has the figures."""
    report = tmp_path / "report.json"
    query = "SELECT customer, count(*) AS orders, max(NULLIF(id, id)) AS note FROM input GROUP BY customer"
    code, said = load.run(load.orders("parquet"), "--sql", query, "--json", "--report", str(report))
    assert code == 0, said
    found = [json.loads(value) for value in load.values()]
    assert found == [{"customer": f"c{number}", "orders": 7 if number < 6 else 6} for number in range(9)]
    written = json.loads(report.read_text("utf-8"))
    assert (written["engine"], written["outcome"], written["rows"], written["exit_code"]) == ("spark", "done", 9, 0)
    assert sum(written["partitions"][load.topic].values()) == 9


def test_query_needs_no_file(load: Load) -> None:
    assert load.run("--sql", "SELECT CAST(7 AS STRING) AS value")[0] == 0
    assert load.values() == ["7"]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_dry_run_sends_nothing(load: Load, file_format: str) -> None:
    """Of row groups, which tasks read, and of a DataFrame."""
    code, said = load.run(load.orders(file_format), "--format", file_format, "--json", "--dry-run")
    assert code == 0
    assert said.startswith(f"aioproducer: 60 records would go to {load.topic} in ")
    assert load.values() == []


@pytest.mark.parametrize(
    "options, said",
    [
        (["--key", "nr", "--json"], "the input has no column 'nr'; it has id, customer, note"),
        ([], "the input has no column 'value'; it has id, customer, note; --json makes the value from all columns"),
    ],
)
def test_missing_column_is_a_usage_error(load: Load, options: list[str], said: str) -> None:
    assert load.run(load.orders("orc"), "--format", "orc", *options) == (2, f"aioproducer: {said}")


def test_tasks_are_counted_on_a_terminal(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many have ended, of how many."""
    monkeypatch.setenv("TERM", "xterm")
    code, said = load.run(
        "--sql", "SELECT CAST(id AS STRING) AS value FROM range(60)", "--rate", "30", on_terminal=True
    )
    assert code == 0
    assert re.search(r"\d/2", said), said


def test_wrong_query_is_one_line(load: Load) -> None:
    code, said = load.run("--sql", "SELECT nothing FROM nowhere", "--json")
    last = said.splitlines()[-1]  # after what pyspark logs
    assert (code, last[:13]) == (1, "aioproducer: ")
    assert "nowhere" in last


def test_first_run_on_empty_input_was_not_finished_before(load: Load, tmp_path: Path) -> None:
    """The second one was."""
    none = str(tmp_path / "none")
    load.spark.createDataFrame([], "value string").write.orc(none)
    once = ("--format", "orc", "--exactly-once", "--sink", load.topic, "--run-id", "monday")
    code, said = load.run(none, *once)
    assert code == 0
    assert said.startswith(f"aioproducer: 0 records committed to {load.topic} in ")
    said = f"aioproducer: run monday of sink {load.topic} was finished before: nothing was sent"
    assert load.run(none, *once) == (0, said)


def test_failed_load_says_what_is_visible(load: Load) -> None:
    """A row that Spark cannot compute: its error has no class of this package, so the cluster is asked."""
    once = ("--exactly-once", "--sink", load.topic)
    code, said = load.run("--sql", "SELECT raise_error('no such order') AS value", *once)
    assert code == 1
    assert "no such order" in said
    assert said.endswith("Nothing of this run is visible")


def test_rate_is_shared_by_as_many_tasks_as_there_are(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions a query has: each task has the share of one of the cores."""
    written: list[tuple[int, str]] = []
    real = _load_spark.load_frame

    def load_frame(records: DataFrame, tasks: int | None, options: dict[str, str]) -> None:
        written.append((tasks or records.rdd.getNumPartitions(), options["maxRecordsPerSecond"]))
        real(records, tasks, options)

    monkeypatch.setattr(_load_spark, "load_frame", load_frame)
    rows = "SELECT CAST(id AS STRING) AS value FROM range(0, 40, 1, 8)"
    assert load.run("--sql", rows, "--rate", "4000")[0] == 0
    assert written == [(load.spark.sparkContext.defaultParallelism, "2000")]
