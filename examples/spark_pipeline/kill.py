"""A data source that kills its driver on the way, as a machine that is switched off would; else it is ours."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import KafkaError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._columns import sink_columns
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source import AioproducerDataSource
from aioproducer.spark._writer import SinkWriter
from examples.spark_pipeline.settings import Settings

IN_BATCH = 1
"""The second batch: one is finished, more follow."""


class KilledSource(AioproducerDataSource):
    """`format("aioproducer-killed")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer-killed"

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: ARG002, FBT001  # Spark's signature
        """Return the writer of a batch."""
        options = SinkOptions.parse(self.options)
        return KilledWriter(options, sink_columns(schema, options))


class KilledWriter(SinkWriter):
    """Kills the driver at the place that the settings name."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows; `task`: die with the first task that has sent some."""
        return super().write(_dying(iterator) if self._dies_at("task") else iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit; `decision`: die when it is written, `round`: after the first transaction that was committed."""
        if self._dies_at("decision"):
            _die_after_decision()
        if self._dies_at("round"):
            _die_in_round()
        super().commit(messages)

    def _dies_at(self, place: str) -> bool:
        return Settings.of_environment().kill_at == place and self._options.batch_id == IN_BATCH


def _dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    kill_driver()


def _die_after_decision() -> None:
    write = SinkCluster.write_decision

    async def write_and_die(
        self: SinkCluster, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        decided = await write(self, coordinator, offsets)
        kill_driver()
        return decided

    SinkCluster.write_decision = write_and_die  # type: ignore[method-assign]


def _die_in_round() -> None:
    end = SinkCluster.end_transactions

    async def end_one_and_die(
        self: SinkCluster, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[KafkaError | None]:
        ended = await end(self, transactions[:1], commit=commit)
        kill_driver()
        return ended

    SinkCluster.end_transactions = end_one_and_die  # type: ignore[method-assign]


def kill_driver() -> None:
    """Kill the driver, its JVM, and this process."""
    settings = Settings.of_environment()
    Path(settings.folder, "killed").write_text(settings.kill_at, "utf-8")
    os.killpg(settings.driver_group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
