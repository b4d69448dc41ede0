"""Data source `aioproducer`, as Spark finds it.

The modules of the writer and the reader are imported when they are used: Spark imports this one in every session of
every user, also where pyarrow or aiokafka is missing.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from aioproducer.errors import ConfigurationError
from aioproducer.spark._columns import sink_columns
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._shown_errors import text_first

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aioproducer.spark._reader import KafkaReader, KafkaStreamReader, RefusedStreamReader
    from aioproducer.spark._source_options import SourceOptions
    from aioproducer.spark._writer import SinkStreamWriter, SinkWriter

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS_COLUMN = "headers array<struct<key: string, value: binary>>"


class AioproducerDataSource(DataSource):
    """`format("aioproducer")`: writes DataFrames and streams to Kafka, and reads topics."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    @text_first()
    def schema(self) -> str:
        """Return the columns of a read, in Spark's language."""
        options = self._read_options(is_stream=None)  # Spark asks for both before it says which
        return f"{COLUMNS}, {HEADERS_COLUMN}" if options.includes_headers else COLUMNS

    @text_first()
    def reader(self, schema: "StructType") -> "KafkaReader":  # noqa: ARG002  # Spark's signature
        """Return the reader of a batch."""
        from aioproducer.spark._reader import KafkaReader  # noqa: PLC0415  # see above

        return KafkaReader(self._read_options(is_stream=False))

    @text_first()
    def streamReader(  # noqa: N802  # Spark's name
        self,
        schema: "StructType",  # noqa: ARG002  # Spark's signature
    ) -> "KafkaStreamReader | RefusedStreamReader":
        """Return the reader of a stream."""
        from aioproducer.spark._reader import KafkaStreamReader, RefusedStreamReader  # noqa: PLC0415  # see above

        try:
            options = self._read_options(is_stream=True)
        except ConfigurationError as refusal:
            return RefusedStreamReader(refusal)
        return KafkaStreamReader(options)

    def _read_options(self, *, is_stream: bool | None) -> "SourceOptions":
        from aioproducer.spark._source_options import SourceOptions  # noqa: PLC0415  # see above

        return SourceOptions.parse(self.options, is_stream=is_stream)

    @text_first()
    def writer(self, schema: "StructType", overwrite: bool) -> "SinkWriter":  # noqa: FBT001  # Spark's signature
        """Return the writer of a DataFrame.

        Raises:
            ConfigurationError: an option or a column is wrong, or the mode is `overwrite`.
        """
        if overwrite:
            raise ConfigurationError(
                'mode("overwrite"): a topic cannot be overwritten; rows are added by mode("append")'
            )
        from aioproducer.spark._writer import SinkWriter  # noqa: PLC0415  # see above

        options = SinkOptions.parse(self.options)
        return SinkWriter(options, sink_columns(schema, options))

    @text_first()
    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: ARG002, FBT001  # Spark's signature
    ) -> "SinkStreamWriter":
        """Return the writer of a stream's batches."""
        from aioproducer.spark._writer import SinkStreamWriter  # noqa: PLC0415  # see above

        options = SinkOptions.parse(self.options)
        options.check_of_stream()
        return SinkStreamWriter(options, sink_columns(schema, options), self.options.get("checkpointLocation"))
