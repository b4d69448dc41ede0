"""Job 2: a stream that reads `flights` and keeps the delays by carrier and hour in the topic `delays`."""

import os
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.spark_pipeline.kill import KilledSource
from examples.spark_pipeline.session import started
from examples.spark_pipeline.settings import Settings

TOPIC = "delays"
FLIGHT = "carrier string, time_hour timestamp, dep_delay double"


def main() -> None:
    """Run the stream to the end of the topic."""
    settings = replace(Settings.of_environment(), driver_group=os.getpgid(0))
    settings.to_environment()
    spark = started("stream delays", settings.cores)
    spark.dataSource.register(KilledSource)
    sink = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "topic": TOPIC,
        "exactlyOnce": "true",
        "sinkId": "delays-v1",
    }

    def write(batch: DataFrame, batch_id: int) -> None:
        # `aioproducer.spark.foreach_batch(sink)` is this function, but for the source that kills.
        batch.write.format("aioproducer-killed").mode("append").options(**sink).option("batchId", batch_id).save()

    query = (
        delays(spark, settings)
        .writeStream.outputMode("update")  # Spark writes this mode to a Python data source only by foreachBatch
        .foreachBatch(write)
        .option("checkpointLocation", str(Path(settings.folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def delays(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return flights and their delays by carrier and hour, as records; the carrier and the hour are the key."""
    flights = (
        spark.readStream.format("aioproducer")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.records_per_batch)
        .option("offsetGroup", "delays-v1")
        .load()
    )
    flight = flights.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    totals = flight.groupBy("carrier", f.window("time_hour", "1 hour").start.alias("hour")).agg(
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0.0)).alias("minutes"),
    )
    key = f.concat_ws(" ", "carrier", f.date_format("hour", "yyyy-MM-dd'T'HH"))
    return totals.select(key.alias("key"), f.to_json(f.struct("*")).alias("value"))


if __name__ == "__main__":
    main()
