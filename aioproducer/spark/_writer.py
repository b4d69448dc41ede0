"""Writers that Spark calls: on the driver before the tasks, in each task, and on the driver after them.

    writer(), streamWriter()      options and columns are checked (driver; the latter again in the commit's process)
    __getstate__                  Spark pickles the writer for the tasks, once: topics are looked up, and a sink that is
                                  exactly once is prepared
    write                         a task attempt sends its rows
    commit, abort                 another process of the driver; a stream's has a new writer, so what it must know
                                  comes with the tasks' messages

The processes of the driver import nothing that only tasks need: each write of a new session waits for it.

pyspark calls these by name, and wants text in what they raise: exception objects do not reach the user.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from aioproducer.errors import ConfigurationError
from aioproducer.spark._commit import WrittenTask
from aioproducer.spark._coordinators import prepared, with_sink
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._python_worker import reused_worker
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._report import TaskCounts, batch_report, publish
from aioproducer.spark._running_queries import is_marked_as_running, mark_as_running
from aioproducer.spark._shown_errors import text_first, text_first_from_pickle
from aioproducer.spark._topics import create_missing_topic
from aioproducer.spark._write_choice import RUN_PREFIX, BatchAction, Preparation, WriteName, choose

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties that Spark gives to the tasks of a stream."""
_OF_STREAMS_SESSION: Final = ("spark.sql.streaming.offsetLog.formatVersion", "spark.sql.cbo.enabled")
_IN_A_THREAD: Final = (
    "a write in a thread of a foreachBatch function is a job for Spark unless the thread's function is wrapped in "
    "pyspark.inheritable_thread_target; over Spark Connect each write of a foreachBatch function is one: give "
    'exactlyOnce to writeStream.format("aioproducer") there, or use a classic session'
)


@dataclass
class SinkMessage(WriterCommitMessage):
    """Message of a task to the driver."""

    counts: TaskCounts
    written: WrittenTask | None
    """None without exactlyOnce."""
    query: str
    batch: int | None


class SinkWriter(DataSourceArrowWriter):
    """Writes a DataFrame, or a batch of a stream."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._run: Final = f"{RUN_PREFIX}{options.run_id or uuid.uuid4()}"
        self._preparation: Preparation | None = None
        self._is_ready = False
        self._is_running = options.batch_id is not None or is_marked_as_running(options)

    def __getstate__(self) -> dict[str, object]:
        """Prepare before Spark takes the writer to the tasks."""
        if not self._is_ready:
            with text_first_from_pickle():
                create_missing_topic(self._options, is_running=self._is_running)
                self._preparation = prepared(self._options, is_running=self._is_running)
            self._is_ready = True
        return self.__dict__

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Send the rows of one attempt of a task."""
        with reused_worker(), text_first():
            return self._write(iterator)

    def _write(self, iterator: "Iterator[pa.RecordBatch]") -> "SinkMessage":
        from aioproducer.spark._task import TaskSender  # noqa: PLC0415  # not in the processes of the driver

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        sender = TaskSender(self._options, self._columns)
        if self._options.input is not None:
            from aioproducer.spark._row_groups import rows_of_splits  # noqa: PLC0415  # for `load` alone

            iterator = rows_of_splits(iterator, self._options.input)
        name = self._name(context)
        preparation = self._preparation
        if preparation is None:
            counts, _ = sender.send_all(iterator, task=task)
            return SinkMessage(counts, None, name.query, name.batch)
        assert self._options.sink_id is not None
        _check_place(context, name, has_run_id=self._options.run_id is not None)
        action, record = choose(preparation.last, name, sink_id=self._options.sink_id)
        if action is BatchAction.SKIP:
            skipped = WrittenTask(preparation, record, None, is_skipped=True)
            return SinkMessage(TaskCounts(), skipped, name.query, name.batch)
        data_id = SinkIds(self._options.sink_id).data_id(preparation.lane, task, attempt)
        counts, transaction = sender.send_all(iterator, task=task, transactional_id=data_id)
        entry = None
        if transaction is not None:
            entry = TaskEntry.of(transaction, partition=task, attempt=attempt, rows=counts.rows)
        return SinkMessage(counts, WrittenTask(preparation, record, entry), name.query, name.batch)

    def _name(self, context: TaskContext) -> WriteName:
        """Return where the write comes from."""
        batch, topic = self._batch(context), self._options.topic or ""
        if batch is None:
            return WriteName(self._run, "", None, topic)
        query = f"stream {context.getLocalProperty(QUERY_ID) or 'of foreach_batch'}"
        return WriteName(query, context.getLocalProperty(RUN_ID) or "", batch, topic)

    def _batch(self, context: TaskContext) -> int | None:
        """Return the number of a stream's batch; None for a job.

        Raises:
            ConfigurationError: the option gives another number than Spark.
        """
        given, of_spark = self._options.batch_id, context.getLocalProperty(BATCH_ID)
        if of_spark is None:
            if given is not None and self._options.exactly_once:
                raise ConfigurationError(
                    f"batchId={given}: Spark says of no batch of a stream here. foreach_batch gives the number, inside "
                    f"a query; {_IN_A_THREAD}",
                    option="batchId",
                )
            return given
        if given is not None and given != int(of_spark):
            raise ConfigurationError(
                f"batchId={given}: Spark's number of this batch is {of_spark}; leave batchId out", option="batchId"
            )
        return int(of_spark)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what all tasks have written."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort what tasks have written; unless it is decided: then the commit goes on."""
        written = _written(messages)
        if written:
            with text_first():
                with_sink(self._options, lambda commit: commit.abort(written))

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        begun = time.monotonic()
        sent = [message for message in messages if isinstance(message, SinkMessage)]
        written = _written(messages)
        if sent and sent[0].batch is not None:
            mark_as_running(self._options)
        if written:
            is_last = sent[0].batch is None
            with text_first():
                with_sink(self._options, lambda commit: commit.commit(written, is_last=is_last), is_patient=True)
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

    def __init__(self, options: SinkOptions, columns: SinkColumns, checkpoint: str | None = None) -> None:
        super().__init__(options, columns)
        self._is_running = not _is_new(checkpoint)

    def commit(  # type: ignore[override]  # Spark's own signature
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803  # Spark's name
    ) -> None:
        """Commit what all tasks have written."""
        self._commit(messages)

    def abort(  # type: ignore[override]  # Spark's own signature
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803  # Spark's name
    ) -> None:
        """Abort what tasks have written; unless it is decided: then the commit goes on."""
        SinkWriter.abort(self, messages)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenTask]:
    return [message.written for message in messages if isinstance(message, SinkMessage) and message.written is not None]


def _is_new(checkpoint: str | None) -> bool:
    """Return whether a stream has committed no batch yet; False where its checkpoint cannot be looked at from here."""
    path = urlsplit(checkpoint or "")
    if not path.path or path.scheme not in {"", "file"}:
        return False
    return not any(Path(path.path, "commits").glob("[0-9]*"))


def _check_place(context: TaskContext, name: WriteName, *, has_run_id: bool) -> None:
    """Raise if Spark does not say which run or batch of a stream a write belongs to.

    Raises:
        ConfigurationError: it is in a thread of a foreachBatch function, or the job group is the user's own.
    """
    if name.batch is None:
        marks = [context.getLocalProperty(each) for each in _OF_STREAMS_SESSION]
        if not has_run_id and marks[0] is not None and marks[1] == "false":
            raise ConfigurationError(f"exactlyOnce=true: {_IN_A_THREAD}", option="exactlyOnce")
        return
    try:
        uuid.UUID(name.run)
    except ValueError:
        given = f"the job group is {name.run!r}" if name.run else "there is none"
        raise ConfigurationError(
            f"exactlyOnce=true in a stream needs the job group that Spark gives its query, by which a second write of "
            f"a batch is told from a write that is repeated, and {given}: set none in foreachBatch (job tags do as "
            f"well), and {_IN_A_THREAD}",
            option="exactlyOnce",
        ) from None
