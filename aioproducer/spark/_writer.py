"""Writers that Spark calls: on the driver before the tasks, in each task, and on the driver after them.

    writer(), streamWriter()      options and columns are checked (driver; the latter again in the commit's process)
    __getstate__                  Spark pickles the writer for the tasks, once: topics are looked up, and a sink that is
                                  exactly once is prepared
    write                         a task attempt sends its rows
    commit, abort                 another process of the driver; a stream's has a new writer, so what it must know
                                  comes with the tasks' messages

pyspark calls these by name, and wants text in what they raise: exception objects do not reach the user.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from aioproducer.spark._commit import BatchAction, Preparation, WrittenTask, batch_action, run_action
from aioproducer.spark._coordinators import prepared, with_sink
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._python_worker import reused_worker
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._row_groups import rows_of_splits
from aioproducer.spark._shown_errors import text_first, text_first_from_pickle
from aioproducer.spark._task import TaskCounts, TaskSender, batch_report, publish
from aioproducer.spark._topics import create_missing_topic

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
"""Local properties that Spark gives to the tasks of a stream."""


@dataclass
class SinkMessage(WriterCommitMessage):
    """Message of a task to the driver."""

    counts: TaskCounts
    written: WrittenTask | None
    """None without exactlyOnce, and for a task that skipped its rows because its batch is decided."""
    query: str
    batch: int | None


class SinkWriter(DataSourceArrowWriter):
    """Writes a DataFrame, or a batch of a stream."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._run: Final = f"run {options.run_id or uuid.uuid4()}"
        self._preparation: Preparation | None = None
        self._is_ready = False

    def __getstate__(self) -> dict[str, object]:
        """Prepare before Spark takes the writer to the tasks."""
        if not self._is_ready:
            with text_first_from_pickle():
                create_missing_topic(self._options)
                self._preparation = prepared(self._options)
            self._is_ready = True
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one attempt of a task."""
        with reused_worker(), text_first():
            return self._write(iterator)

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> "SinkMessage":
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        sender = TaskSender(self._options, self._columns)
        if self._options.input is not None:
            iterator = rows_of_splits(iterator, self._options.input)
        query, batch = self._place(context)
        if self._preparation is None:
            counts, _ = sender.send_all(iterator, task=task)
            return SinkMessage(counts, None, query, batch)
        action, batch = self._action(self._preparation, query, batch)
        if action is BatchAction.SKIP:
            return SinkMessage(TaskCounts(), None, query, batch)
        assert self._options.sink_id is not None
        data_id = SinkIds(self._options.sink_id).data_id(batch, task, attempt)
        counts, transaction = sender.send_all(iterator, task=task, transactional_id=data_id)
        entry = None
        if transaction is not None:
            entry = TaskEntry.of(transaction, partition=task, attempt=attempt, rows=counts.rows)
        return SinkMessage(counts, WrittenTask(self._preparation, batch, query, entry), query, batch)

    def _place(self, context: TaskContext) -> tuple[str, int | None]:
        """Return the query, and the batch if it is one of a stream."""
        batch = self._options.batch_id
        if batch is None and (of_spark := context.getLocalProperty(BATCH_ID)) is not None:
            batch = int(of_spark)
        if batch is None:
            return self._run, None
        return f"stream {context.getLocalProperty(QUERY_ID) or 'of foreach_batch'}", batch

    def _action(self, preparation: Preparation, query: str, batch: int | None) -> tuple[BatchAction, int]:
        sink_id = self._options.sink_id or ""
        if batch is None:
            return run_action(preparation, sink_id=sink_id, query=query)
        return batch_action(preparation, sink_id=sink_id, batch=batch, query=query), batch

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what all tasks have written."""
        self._commit(messages, is_last=self._options.batch_id is None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort what tasks have written; unless it is decided: then the commit goes on."""
        written = _written(messages)
        if written:
            with text_first():
                with_sink(self._options, lambda commit: commit.abort(written))

    def _commit(self, messages: Sequence[WriterCommitMessage | None], *, is_last: bool) -> None:
        begun = time.monotonic()
        sent = [message for message in messages if isinstance(message, SinkMessage)]
        written = _written(messages)
        if written:
            with text_first():
                with_sink(self._options, lambda commit: commit.commit(written, is_last=is_last))
        if not sent:
            return
        report = batch_report(
            [message.counts for message in sent],
            query=sent[0].query,
            batch=sent[0].batch,
            transactions=sum(task.entry is not None for task in written),
            commit_s=time.monotonic() - begun,
        )
        publish(report, self._options.report)


class SinkStreamWriter(SinkWriter, DataSourceStreamWriter):
    """Writes the batches of a stream; Spark 4.0 takes it for an Arrow writer because of its first parent."""

    def commit(  # type: ignore[override]  # Spark's own signature
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803  # Spark's name
    ) -> None:
        """Commit what all tasks have written."""
        self._commit(messages, is_last=False)

    def abort(  # type: ignore[override]  # Spark's own signature
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803  # Spark's name
    ) -> None:
        """Abort what tasks have written; unless it is decided: then the commit goes on."""
        SinkWriter.abort(self, messages)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenTask]:
    return [message.written for message in messages if isinstance(message, SinkMessage) and message.written is not None]
