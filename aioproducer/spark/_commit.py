"""The two-phase commit of a batch that many tasks have written, each in a transaction of its own.

Each task leaves its transaction prepared: every record acknowledged, nothing committed. Then one decision is written
(`_decision_record.py`), in a transaction of the sink's coordinator id, and after it every task's transaction is
committed. The decision is what counts: before it the write is redone, after it the next driver commits the rest.
`_write_choice.py` says whether a task writes its rows, skips them, or refuses.

    prepare (driver, before the tasks)
      P1  initialise the coordinator id: its new epoch gives the tasks a lane of ids that no other driver's have
      P2  read the last decision
      P3  commit its transactions again, unless they are known to be committed
    commit (driver, all tasks have ended)
      C1  every task's transaction must still be open
      C2  write the decision, if the last one is still that of P2
      C3  commit every task's transaction
      C4  write down that all is committed
      C5  abort what else is open under the sink's ids: tasks that lost, or of drivers that died or were overtaken
    abort: fence the decision; then commit if it was written after all, else abort

Each initialisation of the coordinator id fences the records of all drivers before. So a record that is refused is
written again under a new epoch if the last decision has not changed, and no newer driver's tasks are writing: one that
merely prepared, and whose query the sink refuses, ends no other. Of two drivers that write, the first decision counts,
and the other driver ends.

The functions await nothing but the methods of `TransactionCluster`: tests run them against a model of the coordinator,
stop them at any step, and let two of them take turns.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from aioproducer.spark._write_choice import RUN_PREFIX, Preparation, lane_of

FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED}
)
ENDED: Final = FENCED | {ErrorCode.INVALID_TXN_STATE}
"""Answers about the coordinator id's transaction after another driver has initialised the id, which ended it."""
TAKEOVERS: Final = 8
"""How often a record that is refused is written again before the driver gives way."""


class OpenedTransaction(NamedTuple):
    """A transactional id that is in a transaction, as its coordinator describes it."""

    producer_id: int
    epoch: int
    is_ongoing: bool


class TransactionCluster(Protocol):
    """Requests to coordinators. Each method retries what is retriable until its time-out and raises KafkaError then."""

    async def init_producer_id(self, transactional_id: str) -> PreparedTransaction:
        """Abort what is open under the id and return its new identity; every older one is fenced from then on."""

    async def abort_all(self, transactions: Mapping[str, OpenedTransaction]) -> None:
        """Abort each transaction, and fence who has it, unless it has ended."""

    async def fence(self, coordinator: PreparedTransaction) -> None:
        """Initialise the coordinator id again, as the one who holds it.

        Kafka ends the open transaction of an id before it compares the epochs of this request: one with an old identity
        ends what a newer driver has open.

        Raises:
            ProducerFencedError: it is held by another now, or its transaction has ended.
        """

    async def fetch_decision(self) -> Mapping[int, OffsetAndMetadata]:
        """Return the group's offsets of the topic with the newest; waits while a transaction may still change them."""

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        """Commit offsets in a transaction of the coordinator id; return the identity for its next one.

        Raises:
            ProducerFencedError: another driver has initialised the id since.
            BrokerError: a broker refused the offsets; they are not committed.
            NoResponseError: they may be committed.
        """

    async def forget_decisions(self, coordinator: PreparedTransaction) -> None:
        """Commit offsets that say that nothing is decided, for each topic that has any; raises as `write_decision`."""

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


class ForgottenTransactionsError(LostTransactionsError):
    """Brokers have forgotten transactional ids of a decided batch: whether its rows are there cannot be told."""


class UndecidedBatchError(TransactionError):
    """Nothing was decided: the batch will be redone."""


class UnfinishedCommitError(TransactionError):
    """The batch is decided, and its commit stopped before its end. The next start does the rest."""


class UncertainCommitError(TransactionError):
    """The decision was sent, and no answer says whether it is written: the next start finds out."""


class SupersededError(TransactionError):
    """Another driver has decided under the same sinkId, or is about to: that one goes on."""


def has_ended(error: KafkaError) -> bool:
    """Return whether a coordinator refuses to commit because the transaction is not open any more.

    Any other error, such as no answer in time or a missing right, leaves it as it is.
    """
    return isinstance(error, ProducerFencedError) or (isinstance(error, BrokerError) and error.code in ENDED)


def is_forgotten(error: KafkaError) -> bool:
    """Return whether a coordinator refuses because it does not know the producer id, or not any more.

    An open transaction is not forgotten: it has ended long ago, one way or the other.
    """
    return isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """Message of a task that has written or skipped its rows to the driver."""

    preparation: Preparation
    record: Decision
    """As all tasks of the write have chosen."""
    entry: TaskEntry | None
    """None if it had no rows or skipped them: it has no transaction."""
    is_skipped: bool = False


class SinkCommit:
    """Prepares, commits and aborts the writes of one sink.

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
        """Finish what an earlier driver decided, and draw the lane of the tasks' ids.

        Raises:
            LostTransactionsError: rows of the last decision are missing, or cannot be told to be there.
            SupersededError: another driver goes on at the same time.
            KafkaError: the cluster did not answer in time, or refused.
        """
        coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
        last = await self.last_decision()
        if last is None or last.is_finished:
            return Preparation(coordinator, last)
        await self._commit_all(last)
        if lane_of(coordinator.epoch) == last.lane:  # its ids are looked at again until it is recorded as finished
            coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
        return Preparation(coordinator, _bare(last))

    async def commit(self, tasks: Sequence[WrittenTask], *, is_last: bool = False) -> None:
        """Decide the write of these tasks and commit their transactions; or note that it was skipped.

        Args:
            tasks: all of the write, those without rows included.
            is_last: no write of this query will follow, so what is left undone after the round is an error.

        Raises:
            UndecidedBatchError: a transaction was no longer open, so nothing was decided.
            SupersededError: another driver has decided under the same sinkId, and this decision was refused.
            UncertainCommitError: the decision was sent, and no answer came.
            BrokerError: a broker refused the decision; nothing was decided.
            LostTransactionsError: rows of the decided batch are missing.
            UnfinishedCommitError: decided, but not all was done in time.
            KafkaError: the cluster did not answer in time, or refused; nothing was decided.
        """
        decision, preparation = self._decision_of(tasks)
        if tasks[0].is_skipped and tasks[0].record == preparation.last:
            return  # a job that was finished before
        try:
            await self._check_all_open(decision)
        except UndecidedBatchError as error:
            self._check_follows(await self.last_decision(), preparation.last, error)
            raise
        decision, coordinator = await self._decide(decision, preparation)
        try:
            await self._commit_all(decision)
            await self._clear_up(decision, coordinator, is_last=is_last)
        except (LostTransactionsError, UnfinishedCommitError):
            raise
        except KafkaError as error:  # no error from here on may read as if nothing was decided
            raise UnfinishedCommitError(
                f"{self._named(decision)} is decided, but its commit did not come to its end: {error}. "
                f"{self._cure_of_unfinished(decision)}"
            ) from error

    async def abort(self, tasks: Sequence[WrittenTask]) -> None:
        """Abort the transactions of tasks, unless their write turns out to be decided: then commit it.

        Args:
            tasks: those that ended; Spark may call this before, while or after tasks run, and after a failed commit.

        Raises:
            KafkaError: as `commit`.
        """
        if not any(task.entry for task in tasks):
            return
        mine, preparation = self._decision_of(tasks)
        if await self._holds(preparation.coordinator):
            with suppress(ProducerFencedError):  # another driver has prepared just now
                # A decision that is still on its way to the broker must be refused from here on.
                await self._cluster.fence(preparation.coordinator)
        decided = await self.last_decision()
        if decided is not None and replace(decided, revision=mine.revision) == mine:
            # It stays unfinished: a write that comes next in this run must find that this one has failed.
            await self._commit_all(decided)
        else:
            await self._cluster.end_transactions(mine.transactions(self._ids), commit=False)

    async def resolve(self) -> Decision | None:
        """Finish what was decided, abort the rest, and return the last decision.

        Raises:
            KafkaError: as `prepare`.
        """
        preparation = await self.prepare()
        coordinator, last = preparation.coordinator, preparation.last
        if last is not None:  # the decision of a driver whose transactions are aborted here is refused from here on
            record = replace(last, revision=last.revision + 1) if last.is_finished else _settled(last)
            _, coordinator = await self._record(record, last, coordinator)
        await self._abort_strays(coordinator)
        return last

    async def reset(self) -> Decision | None:
        """Finish what was decided, then forget it, for a new query under an old sinkId; return what was forgotten.

        Raises:
            KafkaError: as `prepare`.
        """
        preparation = await self.prepare()
        if preparation.last is not None:
            await self._cluster.forget_decisions(preparation.coordinator)
        await self._abort_strays(await self._cluster.init_producer_id(self._ids.coordinator))
        return preparation.last

    async def last_decision(self) -> Decision | None:
        """Return the last decision, and change nothing; wait while one is being written.

        Raises:
            KafkaError: the cluster did not answer in time, or refused.
        """
        return decode_decision(await self._cluster.fetch_decision())

    async def accept_loss(self) -> None:
        """Record the last decision as finished although rows of it are missing, so that its query may go on.

        Raises:
            KafkaError: as `prepare`, but no LostTransactionsError.
        """
        try:
            await self.prepare()
        except LostTransactionsError:
            coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
            last = await self.last_decision()
            if last is not None:  # pragma: no branch  # else another has reset the sink meanwhile
                await self._record(_settled(last), last, coordinator)
        await self.resolve()

    def _decision_of(self, tasks: Sequence[WrittenTask]) -> tuple[Decision, Preparation]:
        writes = {(task.preparation, task.record) for task in tasks}
        if len(writes) != 1:
            raise UndecidedBatchError(f"tasks of {len(writes)} batches cannot be committed together: {writes}")
        [(preparation, record)] = writes
        entries = tuple(sorted(task.entry for task in tasks if task.entry is not None))
        revision = 1 if preparation.last is None else preparation.last.revision + 1
        # Unfinished even without rows: where no answer came, a write that comes next in this run must not go on.
        decision = replace(record, lane=preparation.lane, revision=revision, is_finished=False, entries=entries)
        return decision, preparation

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
                f"{described_tasks(ended, self._ids, decision.lane)}"
            )

    async def _decide(self, decision: Decision, preparation: Preparation) -> tuple[Decision, PreparedTransaction]:
        try:
            return await self._record(decision, preparation.last, preparation.coordinator)
        except (BrokerError, SupersededError, UncertainCommitError, UndecidedBatchError):  # refused, but for one
            raise
        except KafkaError as error:
            cure = "" if _is_run(decision) else ". The next start of the query finds out"
            raise UncertainCommitError(
                f"{self._named(decision)}: no answer says whether the batch is decided: {error}{cure}"
            ) from error

    async def _record(
        self, record: Decision, last: Decision | None, coordinator: PreparedTransaction
    ) -> tuple[Decision, PreparedTransaction]:
        """Write a record that follows the last one; return it as it was written, and the identity for the next.

        Raises:
            SupersededError: the last is another by now, or a newer driver's tasks are writing.
            KafkaError: as `commit`.
        """
        for _ in range(TAKEOVERS):
            try:
                return record, await self._cluster.write_decision(
                    coordinator, encode_decision(record, self._partitions)
                )
            except ProducerFencedError as error:
                refused = error
            try:
                coordinator, found = await self._take_over(record, last, refused)
            except BrokerError as error:  # pragma: no cover  # refused twice, for two reasons, within one decision
                raise UncertainCommitError(f"{self._named(record)}: {refused}; then {error}") from error
            if found == record:  # its first answer was lost
                return record, coordinator
            record = replace(record, revision=1 if found is None else found.revision + 1)
            if not record.is_finished:
                await self._check_all_open(record)
        raise self._superseded("its decision was refused")

    async def _take_over(
        self, record: Decision, last: Decision | None, refused: KafkaError
    ) -> tuple[PreparedTransaction, Decision | None]:
        """Take the coordinator id from the driver that prepared since; return the identity, and the last decision."""
        if not record.is_finished:
            await self._give_way(record, last, refused)
        coordinator = await self._cluster.init_producer_id(self._ids.coordinator)
        found = await self.last_decision()
        if found != record:
            self._check_follows(found, last, refused)
        return coordinator, found

    async def _give_way(self, record: Decision, last: Decision | None, refused: KafkaError) -> None:
        """Raise if a driver that has prepared since goes on, before its identity is taken from it.

        It has decided, or its tasks are writing.

        Raises:
            SupersededError: so it is.
        """
        found = await self.last_decision()
        if found == record:
            return
        self._check_follows(found, last, refused)
        holder = await self._holder()
        lane = None if holder is None else lane_of(holder.epoch)
        is_writing = lane not in {None, record.lane} and await self._cluster.ongoing_ids(self._ids.prefix_of_lane(lane))
        if is_writing:
            raise self._superseded("its decision was refused") from refused

    async def _holder(self) -> OpenedTransaction | None:
        """Return the identity that the coordinator id has now."""
        return (await self._cluster.describe([self._ids.coordinator])).get(self._ids.coordinator)

    async def _holds(self, coordinator: PreparedTransaction) -> bool:
        """Return whether no other driver has prepared since, nor this one written: `fence` would harm that."""
        holder = await self._holder()
        return holder is not None and (holder.producer_id, holder.epoch) == (coordinator.producer_id, coordinator.epoch)

    def _check_follows(self, found: Decision | None, last: Decision | None, refused: KafkaError) -> None:
        """Raise SupersededError if the record found is not the last one, perhaps finished since."""
        if found is not None and last is not None and _bare(found) in {_bare(last), _bare(last.finished())}:
            return
        if found is not None or last is not None:
            raise self._superseded("its decision was refused") from refused

    async def _commit_all(self, decision: Decision) -> None:
        results = await self._cluster.end_transactions(decision.transactions(self._ids), commit=True)
        failed = [(entry, error) for entry, error in zip(decision.entries, results, strict=True) if error is not None]
        if not failed:
            return
        where = self._named(decision)
        ended = [(entry, error) for entry, error in failed if has_ended(error)]
        if not ended:
            raise UnfinishedCommitError(
                f"{where} is decided, and {len(failed)} of its {len(results)} transactions could not be committed: "
                f"{failed[0][1]}. {self._cure_of_unfinished(decision)}"
            ) from failed[0][1]
        # A driver that was asleep sees ids which another has used again: it must not cry for rows that are there.
        if await self.last_decision() != decision:  # pragma: no cover  # a race that few histories reach
            raise self._superseded("it has been overtaken")
        lost = [entry for entry, error in ended if not is_forgotten(error)]
        if not lost:
            raise self._forgotten(decision, [entry for entry, _ in ended]) from ended[0][1]
        raise LostTransactionsError(
            f"{where} is decided, but {len(lost)} of its {len(results)} transactions were aborted before they were "
            f"committed (transactionTimeout, or another program used their ids): {sum(each.rows for each in lost):,} "
            f"rows are missing: "
            f"{described_tasks(lost, self._ids, decision.lane)}",
            lost,
        ) from next(error for _, error in ended if not is_forgotten(error))

    def _forgotten(self, decision: Decision, entries: Sequence[TaskEntry]) -> ForgottenTransactionsError:
        return ForgottenTransactionsError(
            f"{self._named(decision)} is decided, and whether {sum(each.rows for each in entries):,} of its rows are "
            f"there cannot be told any more: brokers have forgotten {len(entries)} of its transactional ids "
            "(transactional.id.expiration.ms), and nothing has recorded that they were committed. Compare the topic "
            "with the source before anything is written again: "
            f"{described_tasks(entries, self._ids, decision.lane)}",
            entries,
        )

    async def _clear_up(self, decision: Decision, coordinator: PreparedTransaction, *, is_last: bool) -> None:
        """Record that all is committed, and abort strays; the next write of a stream does what fails here."""
        with suppress(*(() if is_last else (KafkaError,))):
            _, coordinator = await self._record(decision.finished(), decision, coordinator)
            await self._abort_strays(coordinator)

    async def _abort_strays(self, coordinator: PreparedTransaction) -> None:
        """Abort what is open under the sink's ids, unless another driver has prepared, whose tasks may have begun."""
        found = await self._cluster.ongoing_ids(self._ids.prefix)
        strays = [each for each in found if self._ids.is_data_id(each)]
        if not strays:
            return
        described = await self._cluster.describe([*strays, self._ids.coordinator])
        holder = described.get(self._ids.coordinator)
        if holder is None or (holder.producer_id, holder.epoch) != (coordinator.producer_id, coordinator.epoch):
            return
        await self._cluster.abort_all({each: described[each] for each in strays if each in described})

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
            "it by mistake, or writes of one batch run side by side, give each a sinkId of its own"
        )


def _bare(decision: Decision | None) -> Decision | None:
    return None if decision is None else replace(decision, entries=())


def _settled(last: Decision) -> Decision:
    """Return the record that ends a decision by hand: its run, whose write has failed, may not go on in its batch."""
    return replace(last.finished(), position=0)


def _is_run(decision: Decision) -> bool:
    """Return whether a decision is that of a job that is no stream."""
    return decision.query.startswith(RUN_PREFIX)
