"""Bad inputs through Spark itself: the text of this package comes first, and no traceback."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.functions.conftest import Topics
from tests.spark.functions.test_write import numbers, rate

NO_TOPIC = "'nowhere' does not exist, or may not be described; create it with `aioproducer topic create nowhere "
NO_TOPIC += "--partitions N`"
WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "option": ({"topics": "t"}, "CAST(id AS STRING) AS value", "ConfigurationError: unknown option topics; did you"),
    "column": ({}, "id AS value", "ConfigurationError: column 'value' is bigint: it must be binary or string"),
    "topic": (
        {"topic": "nowhere"},
        "'v' AS value",
        f"ConfigurationError: topic {NO_TOPIC}, or by the option createTopic=N:REPLICAS",
    ),
    "topic of the decision": (
        {"exactlyOnce": "true", "sinkId": "s", "decisionTopic": "nowhere"},
        "'v' AS value",
        f"ConfigurationError: decisionTopic {NO_TOPIC}",
    ),
    "sink": (
        {"topic": "nowhere", "exactlyOnce": "true", "sinkId": "s"},
        "'v' AS value",
        "ConfigurationError: topic 'nowhere' does not exist",
    ),
    "broker": ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "'v' AS value", "NoResponseError: no answer in"),
    "partition": ({}, "'v' AS value, 77 AS partition", "TaskError: task 0, row 0, topic 'OWN': partition must be"),
    "size": (
        {"kafka.max.request.size": "2000"},
        "repeat('v',3000) AS value",
        "TaskError: task 0, row 0, topic 'OWN': the record for topic 'OWN' takes up to",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_first_words_of_a_job_that_fails_are_ours(spark: SparkSession, embedded_topics: Topics, case: str) -> None:
    """The terminal and the jobs' pages show them."""
    options, columns, said = WRONG[case]
    given = {**embedded_topics.options(embedded_topics.create_own()), **options}
    rows = spark.range(0, 1, 1, 1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        rows.write.format("aioproducer").mode("append").options(**given).save()
    check_words(str(caught.value), said.replace("OWN", embedded_topics.own), most=600)


def test_first_words_of_a_stream_that_fails_are_ours(
    spark: SparkSession, embedded_topics: Topics, tmp_path: Path
) -> None:
    """Spark's page about the query follows."""
    writer = rate(spark).writeStream.format("aioproducer").options(**embedded_topics.options("nowhere"))
    with pytest.raises(PySparkException) as caught:
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(180)
    check_words(str(caught.value), "ConfigurationError: topic 'nowhere' does not exist", most=1_500)


def test_first_words_of_a_refused_read_are_ours(spark: SparkSession, embedded_topics: Topics, tmp_path: Path) -> None:
    """PySpark stops the reader of a stream also where there is none, and would tell of that."""
    options = {"subscribe": "t", "kafka.bootstrap.servers": embedded_topics.servers, "endingOffsets": '{"t": {"0": 1}}'}
    rows = spark.readStream.format("aioproducer").options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException) as caught:
        writer.start().awaitTermination(180)
    check_words(str(caught.value), "ConfigurationError: endingOffsets is for batch reads", most=1_500)


def check_words(text: str, said: str, *, most: int) -> None:
    assert said in text
    assert re.match(r"[^\n]*\n?[^\n]*aioproducer\.", text), text
    assert "Traceback" not in text
    assert "Pickling" not in text
    assert len(text) < most


def test_topic_is_created_on_request(spark: SparkSession, topics: Topics) -> None:
    """On the driver, before any task."""
    given = {**topics.options(topics.own), "createTopic": "3:1", "exactlyOnce": "true", "sinkId": topics.own}
    for run in ("1", "2"):
        numbers(spark, 10).write.format("aioproducer").mode("append").options(**given, runId=run).save()
    assert len(topics.values(topics.own)) == 20
    assert {record.partition for record in topics.records(topics.own)} <= {0, 1, 2}
