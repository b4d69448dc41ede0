"""Load of row groups into a topic in this process, without Spark: one task, and the same commit. Needs no pyspark."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from aioproducer.errors import KafkaError
from aioproducer.spark._commit import WrittenTask
from aioproducer.spark._coordinators import prepared, with_sink
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._report import TaskCounts, batch_report
from aioproducer.spark._row_groups import Split, records_of
from aioproducer.spark._task import TaskSender, Watch
from aioproducer.spark._write_choice import RUN_PREFIX, BatchAction, Preparation, WriteName, choose

Told = Callable[[int, int], None]
"""Is told the rows and the bytes of each batch that was taken."""


class LocalLoad:
    """One load.

    Args:
        options: of the write; `input` says what becomes a record.
        splits: to be loaded, in this order.
        told: of the progress.
        watch: as of `TaskSender.send_all`.
    """

    def __init__(
        self, options: SinkOptions, splits: Sequence[Split], told: Told, *, watch: Watch = contextlib.nullcontext
    ) -> None:
        assert options.input is not None
        self._options = options
        self._shape: RowShape = options.input
        self._splits = splits
        self._told = told
        self._watch = watch
        self.query = f"{RUN_PREFIX}{options.run_id or uuid.uuid4()}"

    def dry_run(self) -> TaskCounts:
        """Read all and make the records; send nothing and ask no broker.

        Raises:
            ConfigurationError: a file cannot be read.
        """
        rows = octets = 0
        for batch in self._records():
            rows += batch.num_rows
            octets += batch.nbytes
        return TaskCounts(rows, octets)

    def run(self) -> dict[str, object] | None:
        """Load all; return the report of the batch, None if this run was finished before.

        Raises:
            ConfigurationError: the topic does not exist, or a file cannot be read.
            KafkaError: the cluster did not answer, or a row was refused or not delivered.
            LostTransactionsError, UnfinishedCommitError, UncertainCommitError: as `SinkCommit.commit`.
        """
        preparation = prepared(self._options)
        if preparation is not None:
            return self._run_exactly_once(preparation)
        counts, _ = self._sender().send_all(self._records(), task=0, watch=self._watch)
        return self._report(counts, transactions=0, commit_s=0.0)

    def _run_exactly_once(self, preparation: Preparation) -> dict[str, object] | None:
        sink_id = self._options.sink_id or ""
        name = WriteName(self.query, run="", batch=None, topic=self._options.topic or "")
        action, record = choose(preparation.last, name, sink_id=sink_id)
        if action is BatchAction.SKIP:
            return None
        data_id = SinkIds(sink_id).data_id(preparation.lane, 0, 0)
        counts, transaction = self._sender().send_all(
            self._records(), task=0, transactional_id=data_id, watch=self._watch
        )
        entry = None
        if transaction is not None:
            entry = TaskEntry.of(transaction, partition=0, attempt=0, rows=counts.rows)
        written = [WrittenTask(preparation, record, entry)]
        begun = time.monotonic()
        try:
            with_sink(self._options, lambda commit: commit.commit(written, is_last=True), is_patient=True)
        except BaseException:
            with contextlib.suppress(KafkaError):  # the first error says more
                with_sink(self._options, lambda commit: commit.abort(written))
            raise
        return self._report(counts, transactions=int(entry is not None), commit_s=time.monotonic() - begun)

    def _report(self, counts: TaskCounts, *, transactions: int, commit_s: float) -> dict[str, object]:
        return batch_report([counts], query=self.query, batch=None, transactions=transactions, commit_s=commit_s)

    def _sender(self) -> TaskSender:
        return TaskSender(self._options, self._shape.columns)

    def _records(self) -> Iterator[pa.RecordBatch]:
        for split in self._splits:
            for batch in records_of(split.path, split.row_group, self._shape):
                self._told(batch.num_rows, batch.nbytes)
                yield batch
