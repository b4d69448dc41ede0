"""Data source `aioproducer`, as Spark finds it.

The modules of the writer and the reader are imported when they are used: Spark imports this one in every session of
every user, also where pyarrow or aiokafka is missing.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aioproducer.errors import ConfigurationError
from aioproducer.spark._columns import sink_columns
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._shown_errors import text_first

if TYPE_CHECKING:
    from aioproducer.spark._reader import KafkaReader, KafkaStreamReader, RefusedStreamReader
    from aioproducer.spark._source_options import SourceOptions
    from aioproducer.spark._writer import SinkStreamWriter, SinkWriter

# Not as text: in Spark's language the word timestamp is a type that spark.sql.timestampType chooses.
_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS_COLUMN: Final = StructField("headers", ArrayType(_HEADER))


def _columns_of(options: "SourceOptions") -> StructType:
    return StructType([*_COLUMNS, _HEADERS_COLUMN] if options.includes_headers else [*_COLUMNS])


def _check_columns(given: StructType, options: "SourceOptions") -> None:
    """Raise a ConfigurationError if a read has been given other columns than it has, but for what may be null."""
    there = _columns_of(options)
    if _names_and_types(given) != _names_and_types(there):
        listed = ", ".join(f"{name} {kind}" for name, kind in _names_and_types(there))
        raise ConfigurationError(
            f"schema(...): the columns of a read are {listed}. Leave schema(...) out; select and cast after load()"
        )


def _names_and_types(columns: StructType) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in columns.fields]


class AioproducerDataSource(DataSource):
    """`format("aioproducer")`: writes DataFrames and streams to Kafka, and reads topics."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    @text_first()
    def schema(self) -> StructType:
        """Return the columns of a read."""
        options = self._read_options(is_stream=None)  # Spark asks for both before it says which
        return _columns_of(options)

    @text_first()
    def reader(self, schema: StructType) -> "KafkaReader":
        """Return the reader of a batch.

        Raises:
            ConfigurationError: an option is wrong, or columns are given that a read does not have.
        """
        from aioproducer.spark._reader import KafkaReader  # noqa: PLC0415  # see above

        options = self._read_options(is_stream=False)
        _check_columns(schema, options)
        return KafkaReader(options)

    @text_first()
    def streamReader(  # noqa: N802  # Spark's name
        self,
        schema: StructType,
    ) -> "KafkaStreamReader | RefusedStreamReader":
        """Return the reader of a stream."""
        from aioproducer.spark._reader import KafkaStreamReader, RefusedStreamReader  # noqa: PLC0415  # see above

        try:
            options = self._read_options(is_stream=True)
            _check_columns(schema, options)
        except ConfigurationError as refusal:
            return RefusedStreamReader(refusal)
        return KafkaStreamReader(options)

    def _read_options(self, *, is_stream: bool | None) -> "SourceOptions":
        from aioproducer.spark._source_options import SourceOptions  # noqa: PLC0415  # see above

        return SourceOptions.parse(self.options, is_stream=is_stream)

    @text_first()
    def writer(self, schema: StructType, overwrite: bool) -> "SinkWriter":  # noqa: FBT001  # Spark's signature
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
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001  # Spark's signature
    ) -> "SinkStreamWriter":
        """Return the writer of a stream's batches."""
        from aioproducer.spark._writer import SinkStreamWriter  # noqa: PLC0415  # see above

        options = SinkOptions.parse(self.options)
        options.check_of_stream()
        return SinkStreamWriter(options, sink_columns(schema, options), self.options.get("checkpointLocation"))
