"""Reads by Spark; secrets are in no plan; over TLS and SASL they take the options of a write."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from aioproducer import BlockingProducer, ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._reader import KafkaReader
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.functions.conftest import HAS_READ_LIMITS, Topics
from tests.spark.functions.secret_options import CANARY, SECRETS

PARTITIONS = 2


def fill(topics: Topics, topic: str, rows: int, *, start: int = 0) -> None:
    """Send rows whose value is their number, in turn to each partition."""
    with BlockingProducer(topics.servers) as producer:
        for row in range(start, start + rows):
            producer.enqueue(topic, str(row).encode(), partition=row % PARTITIONS)
        producer.flush()


def reader(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    read = spark.read.format("aioproducer").option("kafka.bootstrap.servers", topics.servers)
    return read.option("subscribe", topic).options(**options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.select(sql.col("value").cast("string")).collect())


def test_batch(spark: SparkSession, topics: Topics) -> None:
    """All rows, or those between given offsets."""
    topic = topics.create_own(PARTITIONS)
    fill(topics, topic, 100)
    assert numbers(reader(spark, topics, topic)) == list(range(100))
    start, end = f'{{"{topic}": {{"0": 10, "1": 50}}}}', f'{{"{topic}": {{"0": 12, "1": -1}}}}'
    assert numbers(reader(spark, topics, topic, startingOffsets=start, endingOffsets=end)) == [20, 22]


def test_empty_topic(spark: SparkSession, topics: Topics) -> None:
    """Has no rows, and the columns of Spark's own source."""
    frame = reader(spark, topics, topics.create_own())
    assert frame.count() == 0
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_open_and_aborted_transactions(spark: SparkSession, topics: Topics) -> None:
    """Are not read, unless asked for; a read beside an open one ends before it, and does not wait for it."""
    topic = topics.create_own(PARTITIONS)
    with BlockingProducer(topics.servers, transactional_id=topic) as producer:
        for number, ends_well in enumerate((False, True)):
            producer.begin_transaction()
            producer.enqueue(topic, str(number).encode(), partition=0)
            producer.flush()
            producer.commit_transaction() if ends_well else producer.abort_transaction()
        producer.begin_transaction()
        producer.enqueue(topic, b"2", partition=0)
        producer.enqueue(topic, b"3", partition=1)
        producer.flush()
        assert numbers(reader(spark, topics, topic)) == [1]
        assert numbers(reader(spark, topics, topic, isolation="read_uncommitted")) == [0, 1, 2, 3]
        producer.commit_transaction()
    assert numbers(reader(spark, topics, topic)) == [1, 2, 3]


def test_timestamps_are_instants_in_each_session(spark: SparkSession, embedded_topics: Topics) -> None:
    """Also in one whose word timestamp is a time without a zone; so a copy may be written."""
    topic = embedded_topics.create_own(PARTITIONS)
    fill(embedded_topics, topic, 3)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        read = reader(spark, embedded_topics, topic)
        assert dict(read.dtypes)["timestamp"] == "timestamp"
        copy = read.select("value", "timestamp").write.format("aioproducer").mode("append")
        copy.options(**embedded_topics.options(topic)).save()
        assert len(numbers(reader(spark, embedded_topics, topic))) == 6
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Reads what is there, in limited batches, goes on where it was, and commits offsets for the tools."""
    topic = topics.create_own(PARTITIONS)
    read: list[int] = []
    for rows in (100, 40):
        fill(topics, topic, rows, start=len(read))
        source = spark.readStream.format("aioproducer").option("kafka.bootstrap.servers", topics.servers)
        source = source.options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30", offsetGroup=f"{topic}-group"
        )
        batches: list[int] = []

        def keep(frame: DataFrame, _: int, batches: list[int] = batches) -> None:
            found = numbers(frame)
            batches.append(len(found))
            read.extend(found)

        writer = source.load().writeStream.foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(180)
        if HAS_READ_LIMITS:
            assert batches == [30] * (rows // 30) + [rows % 30]
    assert sorted(read) == list(range(140))
    committed = Consumer({"bootstrap.servers": topics.servers, "group.id": f"{topic}-group"}).committed(
        [TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=20
    )
    # Spark says that a batch is finished when it plans the next one: the last ones may be missing.
    assert sum(place.offset for place in committed) >= 100


WRONG = {
    "topic that is not there": ({"subscribe": "nowhere"}, "subscribe: no topic 'nowhere' exists"),
    "unknown option": ({"subscribePatterns": ".*"}, "unknown option subscribepatterns; did you mean subscribePattern"),
    "two ways": ({"subscribePattern": ".*"}, "subscribe and subscribePattern are given"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_option_is_named(spark: SparkSession, topics: Topics, case: str) -> None:
    """On the driver."""
    wrong, said = WRONG[case]
    with pytest.raises(PySparkException, match=re.escape(said)):
        reader(spark, topics, topics.create_own(), **wrong).count()


def test_partition_that_is_not_there(spark: SparkSession, topics: Topics) -> None:
    """Is named."""
    topic = topics.create_own(PARTITIONS)
    with pytest.raises(PySparkException, match=f"topic '{topic}' has no partition 7"):
        reader(spark, topics, topic, startingOffsets=f'{{"{topic}": {{"7": 1}}}}').count()


# Secrets


READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **SECRETS}


def plans(spark: SparkSession, frame: DataFrame) -> str:
    """Return every text that Spark makes of a plan."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001  # py4j
    explain = spark._jvm.PythonSQLUtils.explainString  # noqa: SLF001  # py4j
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    return "\n".join([execution.toString(), *(explain(execution, mode) for mode in modes)])


def test_plans_of_reads_hold_no_secret(spark: SparkSession) -> None:
    stream = plans(spark, spark.readStream.format("aioproducer").options(**READ).load())
    assert "kafka.ssl.keystore.key=*********(redacted)" in stream
    assert CANARY not in stream + plans(spark, spark.read.format("aioproducer").options(**READ).load())


# Over TLS and SASL


SECURITY = ClusterSecurity()
WAYS = [
    ("SSL", ""),
    ("MTLS", ""),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_MTLS", "SCRAM-SHA-256"),
]


@pytest.fixture(scope="module")
def secured(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    kafka = KafkaCluster("4.4.0", security=SECURITY)
    kafka_thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield kafka
    kafka_thread.submit(lambda: asyncio.run(kafka.stop())).result()


def options_of(cluster: KafkaCluster, way: tuple[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in cluster.client_properties(*way).items()}


@pytest.mark.kafka
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_records_are_read_with_the_options_of_a_write(secured: KafkaCluster, way: tuple[str, str]) -> None:
    topic, options = "-".join(part for part in way if part).lower().replace("_", "-"), options_of(secured, way)
    written = SinkOptions.parse({**options, "topic": topic})
    with BlockingProducer(ProducerConfig.from_kafka_properties(written.task_properties())) as producer:
        for row in range(100):
            producer.enqueue(topic, str(row).encode(), partition=0)
        producer.flush()

    reader = KafkaReader(SourceOptions.parse({**options, "subscribe": topic}, is_stream=False))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    values = [value for batch in batches for value in batch.column("value").to_pylist()]

    assert values == [str(row).encode() for row in range(100)]


@pytest.mark.kafka
def test_wrong_password_is_the_error_of_the_driver(secured: KafkaCluster) -> None:
    options = options_of(secured, ("SASL_SSL", "PLAIN"))
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace("alice-secret", "canary-wrong")
    reader = KafkaReader(SourceOptions.parse({**options, "subscribe": "any"}, is_stream=False))
    with pytest.raises(KafkaError, match="refused user 'alice'"):
        reader.partitions()
