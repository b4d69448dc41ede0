"""The data source `aioproducer_with_faults`: ours, whose processes stop, fail or wait at named points.

The option `faults` has `Faults` as JSON, so the points reach the tasks on executors and the process that commits.
A process that stops at a point writes its id to a file first, and then stops itself: the test kills it, or lets it
go on. A point is met once. Where the file `HALT` is there, the driver stops after it has prepared its next batch, when
nothing is open.

    commit          the driver has all messages and has asked nothing yet
    decision        every transaction is open; the decision is not written
    decided.half    the decision's offsets are sent; its transaction is not ended
    decided         the decision is written; no transaction is committed
    round.half      half of the transactions are committed
    round.end       all are; it is not noted in the sink's record
    round           it is; Spark knows nothing of it
    task.begin      a task has sent nothing yet
    task.rows       it has sent a part of its rows
    task.end        its transaction is prepared; Spark knows nothing of it
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import KafkaError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._columns import sink_columns
from aioproducer.spark._commit import SinkCommit, WrittenTask
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source import AioproducerDataSource
from aioproducer.spark._write_choice import Preparation
from aioproducer.spark._writer import BATCH_ID, SinkStreamWriter, SinkWriter

NAME = "aioproducer_with_faults"
OPTION = "faults"
HALT = "halt"
HALTED = "halted"
SENT_AFTER_S = 0.3
"""Rows that a task has appended are at the broker then."""


@dataclass(frozen=True)
class Point:
    """Where a process stops, fails or waits.

    Attributes:
        at: name of the point.
        batch: number of the stream's batch; 0 for a job that is no stream.
        task: number of the task, for the points of tasks.
        attempt: of the task; None is any.
        action: what happens.
    """

    at: str
    batch: int = 0
    task: int | None = None
    attempt: int | None = None
    action: Literal["stop", "fail", "wait"] = "stop"


@dataclass(frozen=True)
class Faults:
    """All points of one driver, and the folder for their files."""

    folder: str
    points: tuple[Point, ...] = ()

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "Faults":
        read = json.loads(text)
        return cls(read["folder"], tuple(Point(**each) for each in read["points"]))

    def file_of(self, point: Point) -> Path:
        return Path(self.folder, f"{point.at}-{point.batch}-{'driver' if point.task is None else point.task}")


class InjectedError(Exception):
    """A task fails, as told."""


class _Armed:
    """The faults of this process, and the batch its driver's side is busy with."""

    faults = Faults("")
    batch: int | None = None


def reach(at: str, batch: int | None, *task_and_attempt: int) -> None:
    """Do what is to happen at a point, if anything is."""
    task, attempt = task_and_attempt or (None, None)
    for point in _Armed.faults.points:
        is_here = (point.at, point.batch, point.task) == (at, batch, task) and point.attempt in {None, attempt}
        if is_here and _is_first(_Armed.faults.file_of(point), str(os.getpid())):
            _act(point, f"{at} of task {task}, attempt {attempt}")


def _is_first(file: Path, text: str) -> bool:
    try:
        with file.open("x", encoding="utf-8") as created:
            created.write(f"{text}\n")
    except FileExistsError:
        return False
    return True


def _act(point: Point, what: str) -> None:
    if point.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif point.action == "wait":
        time.sleep(600)
    else:
        raise InjectedError(what)


class FaultySource(AioproducerDataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: ARG002, FBT001
        faults = self._armed()
        options = SinkOptions.parse(self.options)
        return FaultyWriter(faults, options, sink_columns(schema, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: ARG002, FBT001, N802
        faults = self._armed()
        options = SinkOptions.parse(self.options)
        return FaultyStreamWriter(
            faults, options, sink_columns(schema, options), self.options.get("checkpointLocation")
        )

    def _armed(self) -> Faults:
        text = self.options.pop(OPTION, None)
        if text is not None:
            _Armed.faults = Faults.of_text(text)
        return _Armed.faults


class FaultyWriter(SinkWriter):
    """Meets the points of tasks."""

    def __init__(self, faults: Faults, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._faults = faults

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        _Armed.faults = self._faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        place = (int(context.getLocalProperty(BATCH_ID) or 0), context.partitionId(), context.attemptNumber())
        self._note(place)
        reach("task.begin", *place)
        message = super().write(_interrupted(iterator, place))
        reach("task.end", *place)
        return message

    def _note(self, place: Sequence[int]) -> None:
        with Path(_Armed.faults.folder, "attempts").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(place)}\n")


class FaultyStreamWriter(FaultyWriter, SinkStreamWriter):
    """The same for a stream."""


def _interrupted(batches: Iterator[pa.RecordBatch], place: tuple[int, int, int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; meet a point after the second."""
    batch, task, _ = place
    interrupts = any((each.at, each.batch, each.task) == ("task.rows", batch, task) for each in _Armed.faults.points)
    for number, each in enumerate(batches):
        if number == 2 and interrupts:
            time.sleep(SENT_AFTER_S)
            reach("task.rows", *place)
        yield each


# ----------------------------------------------------------------------------------------- points of the driver


_prepare, _commit = SinkCommit.prepare, SinkCommit.commit
_write_decision, _commit_offsets = SinkCluster.write_decision, SinkCluster._commit_offsets  # noqa: SLF001
_end_transactions = SinkCluster.end_transactions


async def prepare(self: SinkCommit) -> Preparation:
    found = await _prepare(self)
    folder = Path(_Armed.faults.folder)
    if folder.joinpath(HALT).exists() and _is_first(
        folder / HALTED, f"{os.getpid()} {found.last and found.last.batch}"
    ):
        os.kill(os.getpid(), signal.SIGSTOP)
    return found


async def commit(self: SinkCommit, tasks: Sequence[WrittenTask], *, is_last: bool = False) -> None:
    _Armed.batch = tasks[0].record.batch
    try:
        reach("commit", _Armed.batch)
        await _commit(self, tasks, is_last=is_last)
        reach("round", _Armed.batch)
    finally:
        _Armed.batch = None


async def write_decision(
    self: SinkCluster, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
) -> PreparedTransaction:
    reach("decision", _Armed.batch)
    found = await _write_decision(self, coordinator, offsets)
    reach("decided", _Armed.batch)
    return found


async def commit_offsets(self: SinkCluster, *arguments: object) -> object:
    found = await _commit_offsets(self, *arguments)  # type: ignore[arg-type]
    reach("decided.half", _Armed.batch)
    return found


async def end_transactions(
    self: SinkCluster, transactions: Sequence[PreparedTransaction], *, commit: bool
) -> Sequence[KafkaError | None]:
    half = len(transactions) // 2
    if _Armed.batch is None or not commit or not half:
        return await _end_transactions(self, transactions, commit=commit)
    first = await _end_transactions(self, transactions[:half], commit=commit)
    reach("round.half", _Armed.batch)
    second = await _end_transactions(self, transactions[half:], commit=commit)
    reach("round.end", _Armed.batch)
    return [*first, *second]


SinkCommit.prepare, SinkCommit.commit = prepare, commit  # type: ignore[method-assign]
SinkCluster.write_decision, SinkCluster.end_transactions = write_decision, end_transactions  # type: ignore[method-assign]
SinkCluster._commit_offsets = commit_offsets  # type: ignore[assignment, method-assign]  # noqa: SLF001
