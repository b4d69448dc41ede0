"""The two-phase commit of a batch that many tasks have written, each in a transaction of its own.

Each task leaves its transaction prepared: every record acknowledged, nothing committed. Then one decision is written
(`_decision_record.py`), in a transaction of the sink's coordinator id, and after it every task's transaction is
committed. The decision is what counts: before it the batch is redone, after it the next driver commits the rest.
`batch_action` and `run_action` say whether a task writes its rows, skips them, or refuses.

    prepare (driver, before the tasks)
      P1  initialise the coordinator id: an older driver's decision will be refused
      P2  read the last decision
      P3  commit its transactions again, which is idempotent
      P4  abort what else is open under the sink's ids: tasks that lost, were cancelled, or had other partitions
    commit (driver, all tasks have ended)
      C1  every task's transaction must still be open
      C2  write the decision; refused if a newer driver has prepared
      C3  commit every task's transaction
      C4  abort copies of tasks that lost
    abort: fence the decision; then commit if it was written after all, else abort

The functions await nothing but the methods of `TransactionCluster`: tests run them against a model of the coordinator,
stop them at any step, and let two of them take turns.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import BrokerError, KafkaError, ProducerFencedError, TransactionError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._decision_record import (
    Decision,
    SinkIds,
    TaskEntry,
    decode_decision,
    described_tasks,
    encode_decision,
)

BOTH_PARITIES: Final = (0, 1)
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED}
)
ENDED: Final = FENCED | {ErrorCode.INVALID_TXN_STATE}
"""Answers about the coordinator id's transaction after another driver has initialised the id, which ended it."""
RUN_PREFIX: Final = "run "
"""Beginning of the query of a job that is no stream."""


class OpenedTransaction(NamedTuple):
    """A transactional id that is in a transaction, as its coordinator describes it."""

    producer_id: int
    epoch: int
    is_ongoing: bool


class TransactionCluster(Protocol):
    """Requests to coordinators. Each method retries what is retriable until its time-out and raises KafkaError then."""

    async def init_producer_id(self, transactional_id: str) -> PreparedTransaction:
        """Abort what is open under the id and return its new identity; every older one is fenced from then on."""

    async def abort_all(self, transactional_ids: Collection[str]) -> None:
        """Abort what is open under each id; every older identity is fenced from then on."""

    async def fence(self, coordinator: PreparedTransaction) -> None:
        """Initialise the coordinator id again, as the one who holds it.

        Raises:
            ProducerFencedError: it is held by another now, or its transaction has ended.
        """

    async def fetch_decision(self) -> Mapping[int, OffsetAndMetadata]:
        """Return the group's offsets; waits while a transaction may still change them."""

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        """Commit offsets in a transaction of the coordinator id; return the identity for its next one.

        Raises:
            ProducerFencedError: another driver has initialised the id since.
            BrokerError: a broker refused the offsets; they are not committed.
            NoResponseError: they may be committed.
        """

    async def end_transactions(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[KafkaError | None]:
        """End each; None where it is committed (aborted) now or was already, else why not.

        Unless the error says that the transaction `has_ended` otherwise, a later attempt may succeed.
        """

    async def ongoing_ids(self, prefix: str) -> Collection[str]:
        """Return the transactional ids that begin with the prefix and are in an open transaction."""

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, OpenedTransaction]:
        """Return the identity and state of each id that its coordinator knows."""


class LostTransactionsError(TransactionError):
    """Transactions of a decided batch were aborted before they were committed: their rows are missing.

    Attributes:
        entries: the tasks whose rows are missing.
    """

    def __init__(self, message: str, entries: Sequence[TaskEntry] = ()) -> None:
        super().__init__(message)
        self.entries: Final = tuple(entries)


class UndecidedBatchError(TransactionError):
    """Nothing was decided: the batch will be redone."""


class UnfinishedCommitError(TransactionError):
    """The batch is decided, and its commit stopped before its end. The next start does the rest."""


class UncertainCommitError(TransactionError):
    """The decision was sent, and no answer says whether it is written: the next start finds out."""


class SupersededError(TransactionError):
    """Another driver works under the same sinkId: the newest one goes on.

    A decision that is refused may have been written before: its first answer was lost, and it was sent again.
    """


class SinkConflictError(TransactionError):
    """The batch does not follow the last decided one of the same query."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """State of the sink before the tasks of a batch begin; travels to the tasks."""

    coordinator: PreparedTransaction
    last_batch: int | None
    """The last decided; None if nothing is decided."""
    last_query: str | None


class BatchAction(enum.Enum):
    """Choice of a task: write its rows or skip them."""

    WRITE = enum.auto()
    SKIP = enum.auto()
    """They are decided already: Spark replays the batch."""


def batch_action(last: Preparation, *, sink_id: str, batch: int, query: str) -> BatchAction:
    """Decide from the last decision whether a batch is to be written.

    Raises:
        SinkConflictError: it is neither the next batch of the same query nor the last one again. Skipping every batch
            up to the last decided would lose the rows of a new checkpoint under an old sinkId.
    """
    if last.last_batch is None or (query == last.last_query and batch == last.last_batch + 1):
        return BatchAction.WRITE
    if query == last.last_query and batch == last.last_batch:
        return BatchAction.SKIP
    raise SinkConflictError(
        f"sinkId {sink_id!r}: the last decided batch is {last.last_batch} of [{last.last_query}], this is batch "
        f"{batch} of [{query}]. A sinkId belongs to one query and its checkpoint: give a new checkpoint a new sinkId, "
        f"or forget the decision with `aioproducer txn reset --sink {sink_id}`"
    )


def run_action(last: Preparation, *, sink_id: str, query: str) -> tuple[BatchAction, int]:
    """Decide whether a job that is no stream is to be written, and as which batch.

    Raises:
        SinkConflictError: the sink belongs to a stream.
    """
    if last.last_batch is None or last.last_query is None:
        return BatchAction.WRITE, 0
    if query == last.last_query:
        return BatchAction.SKIP, last.last_batch
    if not last.last_query.startswith(RUN_PREFIX):
        raise SinkConflictError(
            f"sinkId {sink_id!r} belongs to [{last.last_query}], which is a stream: give this job another, or forget "
            f"the stream's with `aioproducer txn reset --sink {sink_id}`"
        )
    return BatchAction.WRITE, last.last_batch + 1


def has_ended(error: KafkaError) -> bool:
    """Return whether a coordinator refuses to commit because the transaction is not open any more.

    Any other error, such as no answer in time or a missing right, leaves it as it is.
    """
    return isinstance(error, ProducerFencedError) or (isinstance(error, BrokerError) and error.code in ENDED)


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """Message of a task that has written its rows to the driver."""

    preparation: Preparation
    batch: int
    query: str
    entry: TaskEntry | None
    """None if it had no rows: it has no transaction."""


class SinkCommit:
    """Prepares, commits and aborts the batches of one sink.

    Args:
        ids: of the sink.
        cluster: for requests.
        partitions: of the topic whose offsets keep the decision.
    """

    def __init__(self, ids: SinkIds, cluster: TransactionCluster, partitions: int) -> None:
        self._ids = ids
        self._cluster = cluster
        self._partitions = partitions

    async def prepare(self) -> Preparation:
        """Finish what an earlier driver decided, abort what it did not, and fence it.

        Raises:
            LostTransactionsError: rows of the last decided batch are missing.
            SupersededError: a newer driver prepares at the same time.
            KafkaError: the cluster did not answer in time, or refused.
        """
        coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
        last = decode_decision(await self._cluster.fetch_decision())
        if last is None:
            await self._abort_strays(coordinator, BOTH_PARITIES)
            return Preparation(coordinator, None, None)
        await self._commit_all(last, coordinator)
        await self._abort_strays(coordinator, BOTH_PARITIES)
        return Preparation(coordinator, last.batch, last.query)

    async def commit(self, tasks: Sequence[WrittenTask], *, is_last: bool = False) -> None:
        """Decide the batch of these tasks and commit their transactions.

        Args:
            tasks: all of the batch, those without rows included; not those that skipped it.
            is_last: no batch of this query will follow: what is decided is marked as finished, so that the
                transactional ids may expire before the next query begins.

        Raises:
            UndecidedBatchError: a transaction was no longer open, so nothing was decided.
            SupersededError: a newer driver works under the same sinkId, and the decision was refused.
            UncertainCommitError: the decision was sent, and no answer came.
            BrokerError: a broker refused the decision; nothing was decided.
            LostTransactionsError: rows of the decided batch are missing.
            UnfinishedCommitError: decided, but not all was done in time.
            KafkaError: the cluster did not answer in time, or refused; nothing was decided.
        """
        decision, coordinator = self._decision_of(tasks)
        await self._check_all_open(decision)
        coordinator = await self._decide(decision, coordinator)
        try:
            await self._commit_all(decision, coordinator)
            # Ids of the other parity may be those of a newer driver's next batch.
            await self._abort_strays(coordinator, [decision.batch % 2])
            if is_last and decision.entries:
                finished = encode_decision(Decision(decision.batch, decision.query), self._partitions)
                await self._cluster.write_decision(coordinator, finished)
        except (LostTransactionsError, UnfinishedCommitError):
            raise
        except KafkaError as error:  # no error from here on may read as if nothing was decided
            raise UnfinishedCommitError(
                f"{self._named(decision)} is decided, but its commit did not come to its end: {error}. "
                f"{self._cure_of_unfinished(decision)}"
            ) from error

    async def abort(self, tasks: Sequence[WrittenTask]) -> None:
        """Abort the transactions of tasks, unless their batch turns out to be decided: then commit it.

        Args:
            tasks: those that ended; Spark may call this before, while or after tasks run, and after a failed commit.

        Raises:
            KafkaError: as `commit`.
        """
        if not tasks:
            return
        mine, coordinator = self._decision_of(tasks)
        try:
            # A decision that is still on its way to the broker must be refused from here on.
            await self._cluster.fence(coordinator)
        except ProducerFencedError:
            decided = decode_decision(await self._cluster.fetch_decision())
            if decided is None or (decided.batch, decided.query) != (mine.batch, mine.query):
                return  # a newer driver holds the sink: it has aborted, or will abort, these transactions
            await self._commit_all(decided, coordinator)
            return
        decided = decode_decision(await self._cluster.fetch_decision())
        if decided is not None and (decided.batch, decided.query) == (mine.batch, mine.query):
            await self._commit_all(decided, coordinator)
            return
        await self._cluster.end_transactions(mine.transactions(self._ids), commit=False)

    async def reset(self) -> Decision | None:
        """Finish what was decided, then forget it, for a new query under an old sinkId; return what was forgotten.

        Raises:
            KafkaError: as `prepare`.
        """
        preparation = await self.prepare()
        if preparation.last_batch is None:
            return None
        await self._cluster.write_decision(preparation.coordinator, {0: OffsetAndMetadata(0, "")})
        return Decision(preparation.last_batch, preparation.last_query or "")

    async def last_decision(self) -> Decision | None:
        """Return the last decision, and change nothing; wait while one is being written.

        Raises:
            KafkaError: the cluster did not answer in time, or refused.
        """
        return decode_decision(await self._cluster.fetch_decision())

    async def accept_loss(self) -> None:
        """Mark the last decided batch as finished although rows of it are missing, so that its query may go on.

        Raises:
            KafkaError: as `prepare`, but no LostTransactionsError.
        """
        try:
            await self.prepare()
        except LostTransactionsError:
            coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
            last = decode_decision(await self._cluster.fetch_decision())
            if last is not None:
                finished = encode_decision(Decision(last.batch, last.query), self._partitions)
                await self._cluster.write_decision(coordinator, finished)
            await self.prepare()

    def _decision_of(self, tasks: Sequence[WrittenTask]) -> tuple[Decision, PreparedTransaction]:
        batches = {(task.preparation, task.batch, task.query) for task in tasks}
        if len(batches) != 1:
            raise UndecidedBatchError(f"tasks of {len(batches)} batches cannot be committed together: {batches}")
        [(preparation, batch, query)] = batches
        entries = sorted(task.entry for task in tasks if task.entry is not None)
        return Decision(batch, query, tuple(entries)), preparation.coordinator

    async def _check_all_open(self, decision: Decision) -> None:
        transactions = decision.transactions(self._ids)
        described = await self._cluster.describe([each.transactional_id for each in transactions])
        ended = [
            entry
            for entry, each in zip(decision.entries, transactions, strict=True)
            if described.get(each.transactional_id) != (each.producer_id, each.epoch, True)
        ]
        if ended:
            redone = "" if _is_run(decision) else ", and the batch will be redone"
            raise UndecidedBatchError(
                f"sinkId {self._ids.sink_id!r}, batch {decision.batch}: {len(ended)} of {len(transactions)} "
                "transactions ended before the batch was decided, by their transactionTimeout or by another driver; "
                f"nothing of them is visible{redone}: "
                f"{described_tasks(ended, self._ids, decision.batch)}"
            )

    async def _decide(self, decision: Decision, coordinator: PreparedTransaction) -> PreparedTransaction:
        offsets = encode_decision(decision, self._partitions)
        try:
            return await self._cluster.write_decision(coordinator, offsets)
        except ProducerFencedError as error:
            raise self._superseded("its decision was refused") from error
        except BrokerError:  # refused
            raise
        except KafkaError as error:
            cure = "" if _is_run(decision) else ". The next start of the query finds out"
            raise UncertainCommitError(
                f"{self._named(decision)}: no answer says whether the batch is decided: {error}{cure}"
            ) from error

    async def _commit_all(self, decision: Decision, coordinator: PreparedTransaction) -> None:
        results = await self._cluster.end_transactions(decision.transactions(self._ids), commit=True)
        failed = [(entry, error) for entry, error in zip(decision.entries, results, strict=True) if error is not None]
        if not failed:
            return
        where = self._named(decision)
        lost = [entry for entry, error in failed if has_ended(error)]
        if not lost:
            raise UnfinishedCommitError(
                f"{where} is decided, and {len(failed)} of its {len(results)} transactions could not be committed: "
                f"{failed[0][1]}. {self._cure_of_unfinished(decision)}"
            ) from failed[0][1]
        # A driver that was asleep sees ids which the newest has used again: it must not cry for rows that are there.
        await self._check_newest(coordinator)
        raise LostTransactionsError(
            f"{where} is decided, but {len(lost)} of its {len(results)} transactions were aborted before they were "
            f"committed (transactionTimeout, or another program used their ids): {sum(each.rows for each in lost):,} "
            f"rows are missing: "
            f"{described_tasks(lost, self._ids, decision.batch)}",
            lost,
        ) from next(error for _, error in failed if has_ended(error))

    async def _abort_strays(self, coordinator: PreparedTransaction, parities: Collection[int]) -> None:
        found = await self._cluster.ongoing_ids(self._ids.prefix)
        strays = sorted(each for each in found if self._ids.parity_of(each) in parities)
        if strays:
            await self._check_newest(coordinator)
            await self._cluster.abort_all(strays)

    async def _check_newest(self, coordinator: PreparedTransaction) -> None:
        described = await self._cluster.describe([coordinator.transactional_id])
        current = described.get(coordinator.transactional_id)
        if current is None or (current.producer_id, current.epoch) != (coordinator.producer_id, coordinator.epoch):
            raise self._superseded("it has been overtaken")

    def _named(self, decision: Decision) -> str:
        return f"sinkId {self._ids.sink_id!r}, batch {decision.batch} of [{decision.query}]"

    def _cure_of_unfinished(self, decision: Decision) -> str:
        resolve = f"`aioproducer txn resolve --sink {self._ids.sink_id}`"
        # No next start of a run is to be counted on.
        cure = (
            f"{resolve} does the rest"
            if _is_run(decision)
            else f"The next start of the query does the rest, or {resolve}"
        )
        return f"{cure}, if done before the transactionTimeout of its tasks"

    def _superseded(self, what: str) -> SupersededError:
        return SupersededError(
            f"sinkId {self._ids.sink_id!r}: another driver works under this sinkId, so {what}. If two queries share "
            "it by mistake, give each its own"
        )


def _is_run(decision: Decision) -> bool:
    """Return whether a decision is that of a job that is no stream."""
    return decision.query.startswith(RUN_PREFIX)
