"""A data pipeline on Spark, Kafka to Kafka and files to Kafka, exactly once while its driver is killed."""
