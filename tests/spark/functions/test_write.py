"""Writes by Spark, read back by a consumer that is not ours."""

import json
import re
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from aioproducer.errors import ConfigurationError
from aioproducer.spark import activate, check, foreach_batch, register
from aioproducer.spark._load_spark import load_row_groups
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import find_splits
from tests.spark.functions.conftest import Topics

ROWS = 1_000


def numbers(spark: SparkSession, rows: int = ROWS, tasks: int = 3) -> DataFrame:
    """Return rows whose value is their number as text."""
    return spark.range(0, rows, 1, tasks).select(sql.col("id").cast("string").alias("value"))


def expected(rows: int = ROWS) -> list[str]:
    return sorted(map(str, range(rows)))


def rate(spark: SparkSession, rows: int = 10) -> DataFrame:
    """Return a stream with so many rows in each batch; their values are those of `numbers`."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    return source.load().select(sql.col("value").cast("string").alias("value"))


def add_files(folder: Path, first: int, files: int) -> None:
    """Add files of ten rows each to those from which `stream_of_files` makes batches."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + files):
        values = [str(row) for row in range(10 * number, 10 * number + 10)]
        pq.write_table(pa.table({"value": values}), folder / f"{number}.parquet")


def stream_of_files(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream with a batch for each file.

    Unlike `rate` it ends by itself: a query that is stopped within a batch may leave a transaction open, behind which a
    reader waits.
    """
    return spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).parquet(str(folder))


def test_dataframe(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Every row once; the format is found without registration; the report has the figures."""
    topic = topics.create_own()
    report = tmp_path / "report.json"
    numbers(spark).write.format("aioproducer").mode("append").options(**topics.options(topic)).option(
        "report", str(report)
    ).save()
    assert topics.values(topic) == expected()
    figures = json.loads(report.read_text("utf-8"))
    assert (figures["rows"], figures["transactions"], figures["batch"]) == (ROWS, 0, None)
    assert sum(task["rows"] for task in figures["tasks"]) == ROWS
    found = Counter(record.partition for record in topics.records(topic))
    assert figures["partitions"] == {topic: {str(number): rows for number, rows in sorted(found.items())}}


def test_all_columns_written_and_read(spark: SparkSession, topics: Topics) -> None:
    """Come back as they were."""
    topic = topics.create_own()
    select = """
        SELECT CAST('k' AS BINARY) AS key, 'v' AS value, 1 AS partition,
               TIMESTAMP '2024-02-29 12:00:00.123Z' AS timestamp,
               array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers
        UNION ALL SELECT NULL, NULL, 0, TIMESTAMP '1999-01-01 00:00:00Z', NULL
    """
    written = spark.sql(select)
    written.write.format("aioproducer").mode("append").options(**topics.options(topic)).save()
    read = spark.read.format("aioproducer").options(subscribe=topic, includeHeaders="true")
    found = read.option("kafka.bootstrap.servers", topics.servers).load().orderBy("partition")
    text = "CAST(key AS STRING) || ',' || CAST(value AS STRING)"
    rows = found.selectExpr(text, "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "headers")
    tombstone, full = map(tuple, rows.collect())
    assert tombstone == (None, topic, 0, 0, 915_148_800_000, 0, None)
    assert full[:6] == ("k,v", topic, 1, 0, 1_709_208_000_123, 0)
    assert [(header.key, bytes(header.value)) for header in full[6]] == [("h", b"1")]


def test_topic_column(spark: SparkSession, embedded_topics: Topics) -> None:
    """Sends each row to its own topic."""
    for name in ("even", "odd"):
        embedded_topics.create(f"{embedded_topics.own}-{name}", 1)
    named = sql.expr(f"'{embedded_topics.own}-' || CASE WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END").alias("topic")
    rows = spark.range(10).select(named, sql.col("id").cast("string").alias("value"))
    rows.write.format("aioproducer").mode("append").option("kafka.bootstrap.servers", embedded_topics.servers).save()
    assert embedded_topics.values(f"{embedded_topics.own}-odd") == ["1", "3", "5", "7", "9"]


def test_topic_column_exactly_once(spark: SparkSession, topics: Topics) -> None:
    """The decision is kept by the offsets of a topic of its own, and found again by the second run."""
    names = [topics.create(f"{topics.own}-{name}", 1) for name in ("even", "odd")]
    decisions = topics.create(f"{topics.own}-decisions", 1)
    named = sql.expr(f"'{topics.own}-' || CASE WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END").alias("topic")
    rows = spark.range(0, 10, 1, 2).select(named, sql.col("id").cast("string").alias("value"))
    for _ in range(2):
        writer = rows.write.format("aioproducer").mode("append").option("kafka.bootstrap.servers", topics.servers)
        writer.options(exactlyOnce="true", sinkId=topics.own, decisionTopic=decisions, runId="monday").save()
    assert [topics.values(name) for name in names] == [["0", "2", "4", "6", "8"], ["1", "3", "5", "7", "9"]]


def test_stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Appends batch after batch."""
    topic = topics.create_own()
    writer = rate(spark).writeStream.format("aioproducer").options(**topics.options(topic))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    wait_for_batches(query, 3)
    query.stop()
    assert set(expected(30)) <= set(topics.values(topic))


def test_stream_in_complete_mode(spark: SparkSession, embedded_topics: Topics, tmp_path: Path) -> None:
    """Writes the whole result of each batch."""
    topic = embedded_topics.create_own(1)
    counts = rate(spark).groupBy().count().select(sql.col("count").cast("string").alias("value"))
    writer = counts.writeStream.format("aioproducer").outputMode("complete").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", embedded_topics.servers)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    wait_for_batches(query, 2)
    query.stop()
    assert {"10", "20"} <= set(embedded_topics.values(topic))


def test_update_mode_by_foreach_batch(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Spark refuses the mode for Python data sources; the function writes each batch, exactly once too."""
    topic = topics.create_own()
    add_files(tmp_path / "rows", 0, 3)
    parity = (sql.col("value").cast("long") % 2).cast("string").alias("key")
    counts = (
        stream_of_files(spark, tmp_path / "rows")
        .groupBy(parity)
        .count()
        .select("key", sql.col("count").cast("string").alias("value"))
    )
    refused = counts.writeStream.format("aioproducer").outputMode("update").options(**topics.options(topic))
    with pytest.raises(PySparkException, match=r"(?i)update mode"):
        refused.option("checkpointLocation", str(tmp_path / "refused")).start().awaitTermination(180)
    write = foreach_batch(topics.options(topic), exactlyOnce=True, sinkId=topic)
    writer = counts.writeStream.outputMode("update").foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "query")).start().awaitTermination()
    assert topics.values(topic) == ["10", "10", "15", "15", "5", "5"]


def wait_for_batches(query: object, batches: int) -> None:
    """Wait until a query has finished so many, and raise what ended it."""
    done = threading.Event()
    for _ in range(1_800):
        if (error := query.exception()) is not None:  # type: ignore[attr-defined]  # of pyspark
            raise error
        last = query.lastProgress  # type: ignore[attr-defined]
        if last is not None and last["batchId"] >= batches:
            return
        done.wait(0.1)
    raise AssertionError("the query is slow")


def test_run_is_done_once(spark: SparkSession, topics: Topics) -> None:
    """A second run with the same runId does nothing, another one writes again."""
    topic = topics.create_own()
    for run in ("monday", "monday", "tuesday"):
        writer = numbers(spark, 100).write.format("aioproducer").mode("append").options(**topics.options(topic))
        writer.options(exactlyOnce="true", sinkId=topic, runId=run).save()
    assert topics.values(topic) == sorted([*expected(100), *expected(100)])


def test_batch_is_all_or_nothing(spark: SparkSession, topics: Topics) -> None:
    """A row that fails in one task leaves nothing of the others to be seen."""
    topic = topics.create_own()
    partition = sql.when(sql.col("id") == 99, 77).otherwise(0).cast("int").alias("partition")
    rows = spark.range(0, 100, 1, 2).select(sql.col("id").cast("string").alias("value"), partition)
    writer = rows.write.format("aioproducer").mode("append").options(**topics.options(topic))
    with pytest.raises(PySparkException, match=r"task 1, row 49, topic .*77"):
        writer.options(exactlyOnce="true", sinkId=topic).save()
    assert topics.values(topic) == []


def test_stream_exactly_once_over_restarts(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Also with another number of tasks, and for a batch that Spark runs again."""
    topic = topics.create_own()
    once = {**topics.options(topic), "exactlyOnce": "true", "sinkId": topic}
    files, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
    for run, tasks in enumerate((2, 3, 1)):
        add_files(files, 2 * run, 2)
        stream = stream_of_files(spark, files).repartition(tasks).writeStream.trigger(availableNow=True)
        writer = stream.format("aioproducer").options(**once).option("checkpointLocation", str(checkpoint))
        writer.start().awaitTermination()
        assert topics.values(topic) == expected(20 * run + 20)
        forget_last_batch(checkpoint)


def test_batches_may_be_left_out_for_ever(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """The first, the last, over restarts, and repeated ones; a checkpoint that goes back has errors of its own."""
    topic = topics.create_own()
    write = foreach_batch(topics.options(topic), exactlyOnce=True, sinkId=topic)
    files, checkpoint, older = tmp_path / "rows", tmp_path / "checkpoint", tmp_path / "older"
    given: dict[int, list[str]] = {}  # by number of the batch

    def write_some(batch: DataFrame, number: int) -> None:
        if not batch.isEmpty() and number % 3 == 1:
            given[number] = [row.value for row in batch.collect()]
            write(batch, number)

    def run(folder: Path) -> None:
        stream = stream_of_files(spark, files).writeStream.trigger(availableNow=True).foreachBatch(write_some)
        stream.option("checkpointLocation", str(folder)).start().awaitTermination()

    for begun in range(0, 6, 2):
        add_files(files, begun, 2)
        run(checkpoint)
        forget_last_batch(checkpoint)
        if begun == 0:
            shutil.copytree(checkpoint, older)
    run(checkpoint)

    written = sorted(value for values in given.values() for value in values)
    assert (len(written), topics.values(topic)) == (20, written)
    with pytest.raises(PySparkException, match=r"batch 4 .* this is batch 1: an older checkpoint was restored"):
        run(older)
    with pytest.raises(PySparkException, match=r"another query: batch 4 of .*txn reset --sink"):
        run(tmp_path / "new")
    assert topics.values(topic) == written


def forget_last_batch(checkpoint: Path) -> None:
    """Leave a checkpoint as if the driver had died after the sink's commit and before Spark noted it."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    begun_later = [int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*") if int(path.name) > last]
    forgotten = [("commits", last), *(("offsets", batch) for batch in begun_later)]
    for log, batch in forgotten:
        (checkpoint / log / str(batch)).unlink()
        # Hadoop takes a batch whose checksum is left for one that another query has written.
        (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


def test_new_checkpoint_with_an_old_sink_is_refused(
    spark: SparkSession, embedded_topics: Topics, tmp_path: Path
) -> None:
    """Its batches would be taken for those that are decided."""
    topic = embedded_topics.create_own()
    once = {**embedded_topics.options(topic), "exactlyOnce": "true", "sinkId": topic}
    for number in range(2):
        writer = rate(spark).writeStream.format("aioproducer").options(**once)
        query = writer.option("checkpointLocation", str(tmp_path / str(number))).start()
        if number == 0:
            wait_for_batches(query, 1)
            query.stop()
            continue
        with pytest.raises(PySparkException, match=f"sinkId '{topic}'"):
            query.awaitTermination(180)


WRONG = {
    "unknown option": ({"topics": "t"}, "unknown option topics; did you mean topic"),
    "topic that is not there": ({"topic": "nowhere"}, "topic 'nowhere' does not exist"),
    "time-out over the broker's": (
        {"exactlyOnce": "true", "sinkId": "s", "transactionTimeout": "16m"},
        "transactionTimeout=960000ms: the brokers allow at most",
    ),
}


def test_overwrite_is_refused_on_the_driver(spark: SparkSession, embedded_topics: Topics) -> None:
    """It would append."""
    writer = numbers(spark).write.format("aioproducer").options(**embedded_topics.options(embedded_topics.create_own()))
    with pytest.raises(PySparkException, match=r'mode\("overwrite"\): a topic cannot be overwritten'):
        writer.mode("overwrite").save()


def test_name_of_a_constant_header_is_in_lower_case(spark: SparkSession, embedded_topics: Topics) -> None:
    """Spark gives the names of options so; the value is as given."""
    topic = embedded_topics.create_own()
    writer = numbers(spark, 1, 1).write.format("aioproducer").mode("append").options(**embedded_topics.options(topic))
    writer.option("header.Trace-Id", "Ab").save()
    assert [record.headers for record in embedded_topics.records(topic)] == [[("trace-id", b"Ab")]]


def test_row_groups_of_files_are_read_by_the_tasks(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """As `aioproducer load --master` has them: the DataFrame has only their places."""
    file = tmp_path / "orders.parquet"
    orders = pa.table({"id": range(ROWS), "customer": [f"c{number % 9}" for number in range(ROWS)]})
    pq.write_table(orders, file, row_group_size=100)
    topic = topics.create_own()
    given = {**topics.options(topic), "input": "splits", "inputKey": "customer", "inputValue": "id"}
    given |= {"exactlyOnce": "true", "sinkId": topic, "runId": "1"}
    splits = find_splits([str(file)], RowShape("customer", "id"))
    for _ in range(2):  # the second run finds the first one finished
        load_row_groups(spark, splits, tasks=3, options=given)
    records = topics.records(topic)
    assert topics.values(topic) == expected()
    assert all(record.key == f"c{int(record.value or b'') % 9}".encode() for record in records)
    with pytest.raises(PySparkException, match="input=splits is for the rows of `aioproducer load`"):
        numbers(spark).write.format("aioproducer").mode("append").options(**given).save()


@pytest.mark.parametrize("case", WRONG)
def test_wrong_option_fails_on_the_driver(spark: SparkSession, topics: Topics, case: str) -> None:
    """Before any task: the rows are never computed."""
    wrong, said = WRONG[case]
    given = {**topics.options(topics.create_own()), **wrong}
    fails = numbers(spark).select(sql.expr("raise_error('computed')").cast("string").alias("value"))
    with pytest.raises(PySparkException, match=re.escape(said)) as caught:
        fails.write.format("aioproducer").mode("append").options(**given).save()
    assert "computed" not in str(caught.value)


def test_wrong_column_fails_on_the_driver(spark: SparkSession, embedded_topics: Topics) -> None:
    """With its name and type."""
    writer = spark.range(3).select(sql.col("id").alias("value")).write.format("aioproducer").mode("append")
    writer = writer.option("kafka.bootstrap.servers", embedded_topics.servers).option("topic", "t")
    with pytest.raises(PySparkException, match="column 'value' is bigint: it must be binary or string"):
        writer.save()


def test_no_broker_fails_on_the_driver(spark: SparkSession) -> None:
    """With its address, and before any task."""
    writer = numbers(spark).write.format("aioproducer").mode("append").option("topic", "t")
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        writer.option("kafka.bootstrap.servers", "127.0.0.1:1").save()


def test_secret_of_an_option_is_not_shown(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither in the error nor in what Spark prints."""
    writer = numbers(spark).write.format("aioproducer").mode("append").option("topic", "t")
    writer = writer.option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(PySparkException, match="sasl") as caught:
        writer.option("kafka.sasl.jaas.config", "password=hunter2;").save()
    assert "hunter2" not in str(caught.value)
    stream = rate(spark).writeStream.format("aioproducer").option("topic", "t")
    stream = stream.option("kafka.sasl.jaas.config", "password=hunter2;")
    with pytest.raises(PySparkException, match=r"sasl|bootstrap") as caught:
        stream.option("checkpointLocation", "/nowhere").start().awaitTermination(180)
    assert "hunter2" not in "".join([str(caught.value), *capfd.readouterr()])


def test_default_save_mode_keeps_sparks_words(spark: SparkSession) -> None:
    """It wants `.mode("append")`."""
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        numbers(spark).write.format("aioproducer").option("topic", "t").save()


def test_thread_that_is_activated(spark: SparkSession, embedded_topics: Topics) -> None:
    """Writes; without it Spark finds no Python data source there, unless it lends the thread a session."""
    topic = embedded_topics.create_own()
    errors: list[str] = []

    def write() -> None:
        activate(spark)
        writer = numbers(spark, 10).write.format("aioproducer").mode("append").options(**embedded_topics.options(topic))
        try:
            writer.save()
        except PySparkException as error:
            errors.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert errors == []
    assert embedded_topics.values(topic) == expected(10)


PYTHONS = {
    sys._base_executable: r"aioproducer is missing, and \S+ here.*pip install 'aioproducer\[spark\]==",  # type: ignore[attr-defined]  # noqa: SLF001
    "/nowhere/python": "no Python of this session's executors could be asked: .*set PYSPARK_PYTHON",
}


@pytest.mark.parametrize("python", PYTHONS, ids=["without the package", "not there"])
def test_python_of_the_executors_is_checked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """It lacks the package, or does not start."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(ConfigurationError, match=PYTHONS[python]):
        check(spark)


def test_check_and_register(spark: SparkSession, embedded_topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """The executors here have what this program has, and the session's settings hide secrets."""
    topic = embedded_topics.create_own()
    for _ in range(2):  # the second time Spark knows the format
        register(spark)
        numbers(spark, 5).write.format("aioproducer").mode("append").options(**embedded_topics.options(topic)).save()
    assert len(embedded_topics.values(topic)) == 10
    (found,) = check(spark)
    assert "recommended_conf" not in caplog.text
    assert found.aioproducer is not None
    assert found.pyarrow is not None
