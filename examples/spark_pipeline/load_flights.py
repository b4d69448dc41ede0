"""Job 1: the flights of 2013, with the weather at their departure and their planes, into the topic `flights`."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.spark_pipeline.session import started
from examples.spark_pipeline.settings import Settings

TOPIC = "flights"


def main() -> None:
    """Run the job; run again, it finds that it is done."""
    settings = Settings.of_environment()
    spark = started("load flights", settings.cores)
    records = flights_with_details(spark, Path(settings.folder))
    (
        records.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("topic", TOPIC)
        .option("exactlyOnce", "true")
        .option("sinkId", "load-flights")
        .option("runId", "2013")
        .save()
    )
    spark.stop()


def flights_with_details(spark: SparkSession, folder: Path) -> DataFrame:
    """Join the tables; a record's key is the aircraft, its value a JSON object."""

    def table(name: str) -> DataFrame:
        return spark.read.csv(str(folder / f"{name}.csv"), header=True, inferSchema=True, nullValue="NA")

    hour_of_departure = ["origin", "time_hour"]
    weather = (
        table("weather")
        .select(*hour_of_departure, "temp", "wind_speed", "precip", "visib")
        .dropDuplicates(hour_of_departure)  # the hour in which summer time ended stands twice
    )
    planes = table("planes").select("tailnum", f.col("year").alias("built"), "manufacturer", "model", "seats")
    joined = table("flights").join(weather, hour_of_departure, "left").join(planes, "tailnum", "left")
    return joined.select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))


if __name__ == "__main__":
    main()
