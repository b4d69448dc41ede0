"""Reads each option set with Spark's own source and with ours, in one session; a program, which prints lines of JSON.

python -m tests.spark.functions.both_formats SERVERS TOPIC JAR,JAR...
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Mapping

from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioproducer.spark import offsets_behind_latest, recommended_conf
from tests.spark.option_sets import SETS, options_of

ATTEMPTS = 10
PARTS = "minPartitions"
"""Without it, Spark's source of 4.2 does not obey `maxRecordsPerPartition` in a batch; later ones do, as ours does."""
FORMATS = ("kafka", "aioproducer")
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


def session(jars: str) -> SparkSession:
    settings = {**recommended_conf(), "spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.python.authenticate.socketTimeout": "120s"}
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def rows_of(frame: DataFrame) -> list[str]:
    """Return rows as text, in the order of their offsets."""
    columns = [name for name in COLUMNS if name in frame.columns]
    rows = [[row[name] for name in columns] for row in frame.select(*columns).collect()]
    return [repr(row) for row in sorted(rows, key=lambda row: row[:3])]


def batch(spark: SparkSession, form: str, options: Mapping[str, str]) -> dict[str, object]:
    frame = spark.read.format(form).options(**options).load()
    found = {"rows": rows_of(frame), "schema": frame.schema.json()}
    return {**found, "parts": frame.rdd.getNumPartitions()} if PARTS in options else found


def stream(spark: SparkSession, form: str, options: Mapping[str, str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        return stream_of(spark.readStream.format(form).options(**options).load(), form, folder)


def stream_of(frame: DataFrame, form: str, checkpoint: str) -> dict[str, object]:
    """Return what a query reads that goes on from a checkpoint."""
    rows: list[str] = []
    writer = frame.writeStream.foreachBatch(lambda found, _: rows.extend(rows_of(found)))
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = ended(writer)
    progress = [each.sources[0] for each in query.recentProgress]
    metrics = {"kafka": lambda source: source.metrics, "aioproducer": offsets_behind_latest}[form]
    lag = [metrics(source) for source in progress]
    return {"rows": sorted(rows), "schema": frame.schema.json(), "lag": lag}


def ended(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query to its end; Spark gives the Python process of its source 10 s to start, too few on a busy machine."""
    for _ in range(ATTEMPTS):
        query = writer.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise TimeoutError("the Python process of the source does not start")


def taken_over(spark: SparkSession, servers: str, topic: str) -> list[int]:
    """Return how many rows queries with one checkpoint read in turn, between which a record is sent."""
    counts, producer = [], Producer({"bootstrap.servers": servers})
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    with tempfile.TemporaryDirectory() as folder:
        for form in (*FORMATS, *FORMATS):
            frame = spark.readStream.format(form).options(**options).load()
            counts.append(len(stream_of(frame, form, folder)["rows"]))  # type: ignore[arg-type]
            producer.produce(topic, b"later", partition=0)
            producer.flush()
    return counts


def outcome(spark: SparkSession, form: str, options: Mapping[str, str], *, is_stream: bool) -> dict[str, object]:
    """Return what is read, or the text of the refusal."""
    try:
        return (stream if is_stream else batch)(spark, form, options)
    except (PySparkException, Py4JJavaError) as error:
        return {"refused": str(error)[:2_000]}


def main() -> None:
    """Print a line for each set: of what kind, its name, the format, and the outcome."""
    servers, topic, jars = sys.argv[1:]
    spark = session(jars)
    for kind, sets in SETS.items():
        for name, form in itertools.product(sets, FORMATS):
            options = {"kafka.bootstrap.servers": servers, **options_of(name, sets, topic)}
            found = outcome(spark, form, options, is_stream=kind == "stream")
            print(json.dumps([kind, name, form, found]), flush=True)
    print(json.dumps(["checkpoint", "", "", taken_over(spark, servers, f"{topic}-others")]))
    spark.stop()


if __name__ == "__main__":
    main()
