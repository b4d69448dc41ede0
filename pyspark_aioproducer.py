"""Where Spark looks for the format `aioproducer`: it imports every module called pyspark_* and takes this name."""

from aioproducer.spark.source import AioproducerDataSource as DefaultSource

__all__ = ["DefaultSource"]
