"""The name of a write, and the choice by it: whether a task writes its rows, skips them, or refuses.

A write of a stream is named by its query, its batch, and its number among the writes of this batch: a function of
`foreachBatch` may write several times, one after the other. Spark repeats a batch only in another run of the query, so
a write that comes again belongs to another run than the last decision, and a second write of the function to the same.
The decision keeps how many writes of its batch are decided, and how many of them the run has seen:

    batch above the last               write, as the first of its batch; batches between may be left out
    same batch, position < decided     skip, and note the position: an older run has decided this write
    same batch, position = decided     write, as the next of its batch
    anything else                      refuse: a skip would lose rows, and a write would double them

A job that is no stream is named by its run id, and writes once. No I/O.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import TransactionError
from aioproducer.spark._decision_record import LANES, Decision

FORMER_RUNS: Final = 8
"""How many a decision remembers."""
RUN_PREFIX: Final = "run "
"""Beginning of the query of a job that is no stream."""


class SinkConflictError(TransactionError):
    """The write does not follow the last decided one: writing could double rows, and skipping could lose them."""


class WriteName(NamedTuple):
    """Origin of a write, as its tasks know it."""

    query: str
    """`stream <queryId>` or `run <runId>`."""
    run: str
    """Spark's id of the stream's run; empty for a job."""
    batch: int | None
    """None for a job."""
    topic: str
    """Empty if rows name it."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """State of the sink before the tasks of a write begin; travels to the tasks."""

    coordinator: PreparedTransaction
    last: Decision | None
    """The last decision without its tasks, as it was found: all that it decided is committed now."""

    @property
    def lane(self) -> int:
        """Lane of the data ids."""
        return lane_of(self.coordinator.epoch)


def lane_of(epoch: int) -> int:
    """Return the lane of the driver that holds the coordinator id at an epoch."""
    return epoch % LANES


class BatchAction(enum.Enum):
    """Choice of a task: write its rows or skip them."""

    WRITE = enum.auto()
    SKIP = enum.auto()
    """They are decided already."""


class Choice(NamedTuple):
    """Choice of a task, and the record of the driver when all have followed it."""

    action: BatchAction
    record: Decision
    """Without lane, revision and tasks."""


def choose(last: Decision | None, name: WriteName, *, sink_id: str) -> Choice:
    """Decide from the last decision whether a write is to be done.

    Raises:
        SinkConflictError: it cannot be told, or the sink belongs to another query.
    """
    is_job = _is_job(name.query)
    if last is None or (is_job and name.query != last.query and _is_job(last.query)):
        return Choice(BatchAction.WRITE, _first_of_batch(name, 0 if last is None else last.batch + 1))
    if name.query != last.query:
        raise SinkConflictError(f"sinkId {sink_id!r} {_other_query(last, name, sink_id)}")
    return _again(last, name, 0, sink_id=sink_id) if is_job else _of_stream(last, name, sink_id)


def _of_stream(last: Decision, name: WriteName, sink_id: str) -> Choice:
    """Choose for a write of the stream that has the last decision."""
    batch = name.batch or 0
    if name.run in last.former_runs:
        raise SinkConflictError(
            f"sinkId {sink_id!r}: another driver works under this sinkId: run {last.run} of [{last.query}] has taken "
            f"over from this one, {name.run}, and goes on"
        )
    if batch > last.batch:
        return Choice(BatchAction.WRITE, replace(_first_of_batch(name, batch), former_runs=_former_runs(last, name)))
    if batch < last.batch:
        raise SinkConflictError(
            f"sinkId {sink_id!r}: batch {last.batch} of [{last.query}] is decided, and this is batch {batch}: an older "
            "checkpoint was restored, whose next batches may have other rows than those that are in the topic. "
            f"Restore the checkpoint that has come to batch {last.batch}; or write all from batch {batch} on again, "
            f"which doubles rows, after `aioproducer txn reset --sink {sink_id}`"
        )
    is_same_run = name.run == last.run
    if is_same_run and (not last.is_finished or last.position == 0):
        raise SinkConflictError(
            f"sinkId {sink_id!r}: write {len(last.writes)} of batch {batch} of [{last.query}] is decided, but its "
            "commit did not come to its end in this run, so whether this write is the same again cannot be told. Let "
            "the error of a write end the function of foreachBatch and the query: its next start goes on where it was"
        )
    position = last.position if is_same_run else 0
    if position < len(last.writes):
        return _again(last, name, position, sink_id=sink_id)
    record = replace(last, writes=(*last.writes, name.topic), position=position + 1, is_finished=False, entries=())
    return Choice(BatchAction.WRITE, record)


def _first_of_batch(name: WriteName, batch: int) -> Decision:
    batch = batch if name.batch is None else name.batch
    return Decision(query=name.query, run=name.run, batch=batch, writes=(name.topic,), position=1)


def _former_runs(last: Decision, name: WriteName) -> tuple[str, ...]:
    """Return the runs before this one; that of a job, and one that format 1 does not name, is none."""
    added = () if last.run in {"", name.run} else (last.run,)
    return (*added, *last.former_runs)[:FORMER_RUNS]


def _again(last: Decision, name: WriteName, position: int, *, sink_id: str) -> Choice:
    """Choose for a write that an older run has decided."""
    topic = last.writes[position]
    if topic and name.topic and topic != name.topic:
        raise SinkConflictError(
            f"sinkId {sink_id!r}: [{last.query}] has written, and write {position + 1} of batch {last.batch} went to "
            f"topic {topic!r}; this one goes to topic {name.topic!r}. Writes under one sinkId come one after the "
            "other, and in the same order each time: give each output a sinkId of its own"
        )
    record = replace(
        last,
        run=name.run,
        former_runs=_former_runs(last, name),
        position=position + 1,
        is_finished=True,
        entries=(),
    )
    return Choice(BatchAction.SKIP, record)


def _other_query(last: Decision, name: WriteName, sink_id: str) -> str:
    reset = f"forget the decision with `aioproducer txn reset --sink {sink_id}`"
    if _is_job(name.query):
        return (
            f"belongs to [{last.query}], which is a stream: give this job another, or {reset}. A write in a thread of "
            "a foreachBatch function is a job for Spark unless the thread's function is wrapped in "
            "pyspark.inheritable_thread_target"
        )
    if _is_job(last.query):
        return f"belongs to jobs, the last [{last.query}]: give [{name.query}] another, or {reset}"
    return (
        f"belongs to another query: batch {last.batch} of [{last.query}] is decided, this is batch {name.batch} of "
        f"[{name.query}]. A sinkId belongs to one query and its checkpoint: give a new checkpoint a new sinkId, or, if "
        f"the old query is never to run again, {reset}"
    )


def _is_job(query: str) -> bool:
    return query.startswith(RUN_PREFIX)
