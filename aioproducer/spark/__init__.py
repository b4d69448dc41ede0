"""Spark: a PySpark data source that writes to Kafka and reads from it, exactly once where that is asked for."""
