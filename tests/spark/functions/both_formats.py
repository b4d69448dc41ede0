"""Reads each option set with Spark's own source and with ours, in one session; a program, which prints lines of JSON.

python -m tests.spark.functions.both_formats SERVERS TOPIC JAR,JAR...
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from aioproducer.spark import offsets_behind_latest, recommended_conf
from tests.spark.option_sets import SETS, options_of

PARTS = {"minPartitions", "maxRecordsPerPartition"}
FORMATS = ("kafka", "aioproducer")
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


def session(jars: str) -> SparkSession:
    settings = {**recommended_conf(), "spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    settings["spark.sql.shuffle.partitions"] = "2"
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
    return {**found, "parts": frame.rdd.getNumPartitions()} if PARTS & set(options) else found


def stream(spark: SparkSession, form: str, options: Mapping[str, str]) -> dict[str, object]:
    frame = spark.readStream.format(form).options(**options).load()
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.foreachBatch(lambda found, _: rows.extend(rows_of(found)))
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
    progress = [each.sources[0] for each in query.recentProgress]
    lag = [offsets_behind_latest(source) for source in progress]
    if form == "kafka":
        assert lag == [source.metrics for source in progress]
    return {"rows": sorted(rows), "schema": frame.schema.json(), "lag": lag}


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
    spark.stop()


if __name__ == "__main__":
    main()
