"""The driver program of a case: `python -m tests.spark.crashes.query JOB`, JOB being `Job` as JSON.

A line on standard input stops the query. The program ends with 0 and the last line "done", or with 1 and the error.
"""

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field

from pyspark.sql import DataFrame, SparkSession

from tests.spark.crashes.faulty_source import NAME, FaultySource

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine is no defect
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.driver.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Job:
    """What a driver program does.

    Attributes:
        master: of Spark.
        source: format of the stream, or "parquet" for a job that is no stream.
        source_options: of the reader.
        sink_options: of our writer.
        checkpoint: folder of the stream's.
        shuffles: put a shuffle between reading and writing.
        conf: of Spark, beside `CONF`.
    """

    master: str
    source: str
    source_options: dict[str, str]
    sink_options: dict[str, str]
    checkpoint: str = ""
    shuffles: bool = False
    conf: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))


def main(job: Job) -> None:
    spark = SparkSession.builder.master(job.master).config(map={**CONF, **job.conf}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FaultySource)
    if job.source == "parquet":
        rows = spark.read.parquet(job.source_options["path"])
        values(rows, job).write.format(NAME).mode("append").options(**job.sink_options).save()
        return
    rows = spark.readStream.format(job.source).options(**job.source_options).load()
    stream = values(rows, job).writeStream.format(NAME).options(**job.sink_options)
    query = stream.option("checkpointLocation", job.checkpoint).trigger(processingTime="0 seconds").start()

    def stop_when_told() -> None:
        if sys.stdin.readline():
            query.stop()
        else:  # the test is gone
            os._exit(2)

    threading.Thread(target=stop_when_told, daemon=True).start()
    query.awaitTermination()


def values(rows: DataFrame, job: Job) -> DataFrame:
    found = rows.selectExpr("CAST(value AS STRING) AS value")
    return found.repartition(2, "value") if job.shuffles else found


if __name__ == "__main__":
    try:
        main(Job(**json.loads(sys.argv[1])))
    except Exception as error:  # noqa: BLE001  # whatever it is, the test reads it
        print(error, flush=True)
        os._exit(1)  # the JVM follows; its threads need not end first
    print("done", flush=True)
    os._exit(0)
