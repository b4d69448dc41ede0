"""The data source `aioproducer`, as Spark finds it."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from aioproducer.spark.columns import sink_columns
from aioproducer.spark.options import SinkOptions, SourceOptions
from aioproducer.spark.reader import KafkaReader, KafkaStreamReader, schema_of
from aioproducer.spark.writer import SinkStreamWriter, SinkWriter


class AioproducerDataSource(DataSource):
    """`format("aioproducer")`: writes DataFrames and streams to Kafka, and reads topics."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    def schema(self) -> str:
        """Return the columns of a read."""
        return schema_of(SourceOptions.parse(self.options, is_stream=True))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's signature
        """Return the reader of a batch."""
        return KafkaReader(SourceOptions.parse(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's signature
        """Return the reader of a stream."""
        return KafkaStreamReader(SourceOptions.parse(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: ARG002, FBT001  # Spark's signature
        """Return the writer of a DataFrame."""
        options = SinkOptions.parse(self.options)
        return SinkWriter(options, sink_columns(schema, options))

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001  # Spark's signature
    ) -> SinkStreamWriter:
        """Return the writer of a stream's batches."""
        options = SinkOptions.parse(self.options)
        return SinkStreamWriter(options, sink_columns(schema, options))
