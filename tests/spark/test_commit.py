"""Single steps of the commit, over the model of the coordinator."""

from collections.abc import Collection, Coroutine, Mapping, Sequence
from random import Random

import pytest

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import KafkaError, ProducerFencedError, TopicAuthorizationError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._commit import (
    ForgottenTransactionsError,
    LostTransactionsError,
    SinkCommit,
    SupersededError,
    UncertainCommitError,
    UndecidedBatchError,
    UnfinishedCommitError,
    WrittenTask,
)
from aioproducer.spark._decision_record import Decision, SinkIds, TaskEntry, decode_decision
from aioproducer.spark._write_choice import BatchAction, Preparation, SinkConflictError, WriteName, choose
from tests.spark.coordinator_model import CoordinatorModel, ModelCluster, NoAnswerError, finished, run

IDS = SinkIds("sink")


@pytest.fixture(params=[1, 2])
def model(request: pytest.FixtureRequest) -> CoordinatorModel:
    return CoordinatorModel(Random(1), request.param)


def commit_of(model: CoordinatorModel) -> SinkCommit:
    return SinkCommit(IDS, ModelCluster(model, impatience=0), 3)


def written(
    model: CoordinatorModel, preparation: Preparation, batch: int, *, query: str = "stream q", number: int = 0
) -> WrittenTask:
    transaction = model.initialise(IDS.data_id(preparation.lane, 0, 0))
    model.add_rows(transaction, [(batch, number)])
    entry = TaskEntry.of(transaction, partition=0, attempt=0, rows=1)
    return WrittenTask(preparation, chosen(preparation, batch, query=query), entry)


def chosen(preparation: Preparation, batch: int, *, query: str = "stream q", run_id: str = "r") -> Decision:
    """What the driver records after a write."""
    is_job = query.startswith("run ")
    name = WriteName(query, "" if is_job else run_id, None if is_job else batch, "t")
    action, record = choose(preparation.last, name, sink_id="sink")
    assert action is BatchAction.WRITE
    return record


def decided_only(model: CoordinatorModel, task: WrittenTask) -> None:
    """Let a driver die right after its decision."""
    decision = commit_of(model).commit([task])
    while not model.offsets:
        assert not finished(decision)
    decision.close()


def test_resolve_aborts_what_is_open(model: CoordinatorModel) -> None:
    """In every lane, and nothing of another sink."""
    for lane in (0, 7):
        model.add_rows(model.initialise(IDS.data_id(lane, 5, 0)), [(lane, 0)])
    other = model.initialise("sink.else")
    model.add_rows(other, [(9, 9)])
    assert run(commit_of(model).resolve()) is None
    assert model.ongoing("sink.") == ["sink.else"]


def test_a_batch_without_rows_is_decided_too(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    preparation = run(commit.prepare())
    run(commit.commit([WrittenTask(preparation, chosen(preparation, 0), None)]))
    last = run(commit.prepare()).last
    assert last is not None
    assert (last.batch, last.is_finished) == (0, True)


@pytest.mark.parametrize(
    "query, said", [("stream q", "visible, and the batch will be redone: sink"), ("run 1", "visible: sink")]
)
def test_batch_is_undecided_if_a_transaction_ended_before(model: CoordinatorModel, query: str, said: str) -> None:
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0, query=query)
    model.time_out(IDS.data_id(task.preparation.lane, 0, 0))
    with pytest.raises(UndecidedBatchError, match=r"1 of 1 transactions ended .*sink\.\d\.0\.0 \(1 rows\)") as caught:
        run(commit.commit([task]))
    assert said in str(caught.value)
    assert decode_decision(model.offsets) is None


@pytest.mark.parametrize("query", ["run 1", "stream q"])
def test_round_is_recorded_as_finished_so_ids_may_expire(model: CoordinatorModel, query: str) -> None:
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0, query=query)
    run(commit.commit([task], is_last=query != "stream q"))
    model.expire(IDS.data_id(task.preparation.lane, 0, 0))
    last = run(commit.prepare()).last
    assert last is not None
    assert last.query == query
    assert model.visible == [(0, 0)]


def test_expired_ids_of_an_unfinished_round_cannot_be_told(model: CoordinatorModel) -> None:
    """The rows may be there: they are not called missing. By hand the query goes on."""
    task = written(model, run(commit_of(model).prepare()), 0)
    decided_only(model, task)
    data_id = IDS.data_id(task.preparation.lane, 0, 0)
    model.end(PreparedTransaction(data_id, *task.entry[2:5]), commit=True)  # type: ignore[index]
    model.expire(data_id)
    with pytest.raises(ForgottenTransactionsError, match=r"whether 1 of its rows .*cannot be told any more") as caught:
        run(commit_of(model).prepare())
    assert "missing" not in str(caught.value)
    run(commit_of(model).accept_loss())
    run(commit_of(model).prepare())
    assert model.visible == [(0, 0)]


def test_tasks_of_two_batches_are_not_committed_together(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    preparation = run(commit.prepare())
    with pytest.raises(UndecidedBatchError, match="tasks of 2 batches"):
        run(commit.commit([written(model, preparation, 0), written(model, preparation, 1)]))


def test_reset_finishes_and_forgets(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    assert run(commit.reset()) is None
    run(commit.commit([written(model, run(commit.prepare()), 0)]))
    forgotten = run(commit.reset())
    assert forgotten is not None
    assert (forgotten.batch, forgotten.query) == (0, "stream q")
    assert run(commit.prepare()).last is None


def test_abort_without_tasks_does_nothing(model: CoordinatorModel) -> None:
    run(commit_of(model).abort([]))
    assert not model.identities


def test_abort_of_an_undecided_batch_aborts_its_tasks(model: CoordinatorModel) -> None:
    """And refuses a decision that is still on its way."""
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0)
    run(commit.abort([task]))
    assert (model.ongoing("sink."), model.visible) == ([], [])
    with pytest.raises(ProducerFencedError):
        model.add_offsets(task.preparation.coordinator, {})


@pytest.mark.parametrize("is_redone", [True, False])
def test_abort_of_an_overtaken_driver_leaves_the_newer_alone(model: CoordinatorModel, *, is_redone: bool) -> None:
    old, new = commit_of(model), commit_of(model)
    late = written(model, run(old.prepare()), 0)
    again = written(model, run(new.prepare()), 0)
    if is_redone:
        run(new.commit([again]))
    run(old.abort([late]))
    assert model.visible == ([(0, 0)] if is_redone else [])
    assert model.ongoing("sink.") == ([] if is_redone else [IDS.data_id(again.preparation.lane, 0, 0)])


def test_commit_that_gets_no_answer_is_unfinished(model: CoordinatorModel) -> None:
    """The next start finishes it."""

    class Silent(ModelCluster):
        async def end_transactions(
            self,
            transactions: Sequence[PreparedTransaction],
            *,
            commit: bool,  # noqa: ARG002  # of the protocol
        ) -> Sequence[KafkaError | None]:
            return [NoAnswerError("no answer in 5 min") for _ in transactions]

    commit = SinkCommit(IDS, Silent(model, impatience=0), 3)
    task = written(model, run(commit.prepare()), 0)
    with pytest.raises(
        UnfinishedCommitError,
        match=r"1 of its 1 transactions could not be committed: no answer in 5.* The next start .*if done before",
    ):
        run(commit.commit([task]))
    assert run(commit_of(model).prepare()).last is not None
    assert model.visible == [(0, 0)]


def test_loss_that_is_accepted_is_not_told_again(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    run(commit.accept_loss())  # nothing was decided
    task = written(model, run(commit.prepare()), 0)
    decided_only(model, task)
    model.time_out(IDS.data_id(task.preparation.lane, 0, 0))
    with pytest.raises(LostTransactionsError, match="1 rows are missing"):
        run(commit.prepare())
    run(commit.accept_loss())
    last = run(commit.prepare()).last
    assert last is not None
    assert last.is_finished


def test_decision_of_an_older_driver_is_refused(model: CoordinatorModel) -> None:
    """Once the newer one has decided, or its tasks are writing."""
    run(commit_of(model).commit([written(model, run(commit_of(model).prepare()), 0)]))
    for is_decided in (False, True):
        batch = 1 + is_decided
        old, new = commit_of(model), commit_of(model)
        task = written(model, run(old.prepare()), batch, number=1)
        again = written(model, run(new.prepare()), batch)
        if is_decided:
            run(new.commit([again]))
        with pytest.raises(SupersededError, match="another driver works under this sinkId"):
            run(old.commit([task]))
        if not is_decided:
            run(new.commit([again]))
        run(old.abort([task]))
    assert model.visible == [(0, 0), (1, 0), (2, 0)]


def test_driver_goes_on_if_another_has_only_prepared(model: CoordinatorModel) -> None:
    """As a query that the sink refuses does: it must not end the one that owns the sink."""
    commit = commit_of(model)
    run(commit.commit([written(model, run(commit.prepare()), 0)]))
    task = written(model, run(commit.prepare()), 1)
    stranger = run(commit_of(model).prepare())
    with pytest.raises(SinkConflictError, match=r"another query: batch 0 of \[stream q\] is decided"):
        chosen(stranger, 0, query="stream other")
    run(commit.commit([task]))
    assert model.visible == [(0, 0), (1, 0)]


@pytest.mark.parametrize("ahead", range(12))
def test_newer_driver_decides_while_an_older_one_aborts(model: CoordinatorModel, ahead: int) -> None:
    """Whatever the newer one is about to do; also when nothing was ever decided."""
    old, new = commit_of(model), commit_of(model)
    for batch in range(2):
        overtaken = written(model, run(old.prepare()), batch, number=1)
        deciding = [new.commit([written(model, run(new.prepare()), batch)])]
        for _ in range(ahead):
            deciding = still_running(deciding)
        in_turns(old.abort([overtaken]), *deciding)
    assert model.visible == [(0, 0), (1, 0)]


def in_turns(*coroutines: Coroutine[None, None, None]) -> None:
    """Run all to their ends, a step of each in turn."""
    left = list(coroutines)
    while left:
        left = still_running(left)


def still_running(coroutines: list[Coroutine[None, None, None]]) -> list[Coroutine[None, None, None]]:
    """Take a step of each; return those that it has not ended."""
    return [each for each in coroutines if not finished(each)]


def test_tasks_of_two_drivers_share_no_id(model: CoordinatorModel) -> None:
    """Neither ends the other's transactions, whichever begins first."""
    lanes = [run(commit_of(model).prepare()).lane for _ in range(5)]
    assert len(set(lanes)) == 5


def test_ids_of_an_unfinished_round_are_not_used(model: CoordinatorModel) -> None:
    """They are looked at again until the round is recorded as finished."""
    task = written(model, run(commit_of(model).prepare()), 0)
    decided_only(model, task)
    found = [run(commit_of(model).prepare()) for _ in range(20)]
    assert task.preparation.lane not in {each.lane for each in found}


# Several writes of one batch


def test_writes_of_a_batch_are_done_once_each(model: CoordinatorModel) -> None:
    """Also when the query starts again between two of them: another run repeats the first, and goes on."""
    commit = commit_of(model)
    for number in range(2):
        run(commit.commit([written(model, run(commit.prepare()), 0, number=number)]))
    for position in range(2):  # the next run
        preparation = run(commit.prepare())
        action, record = choose(preparation.last, WriteName("stream q", "r2", 0, "t"), sink_id="sink")
        assert (action, record.position) == (BatchAction.SKIP, position + 1)
        run(commit.commit([WrittenTask(preparation, record, None, is_skipped=True)]))
    preparation = run(commit.prepare())
    action, record = choose(preparation.last, WriteName("stream q", "r2", 0, "t"), sink_id="sink")
    assert (action, len(record.writes)) == (BatchAction.WRITE, 3)
    with pytest.raises(SinkConflictError, match=r"run r2 of \[stream q\] has taken over from this one, r, and goes on"):
        choose(preparation.last, WriteName("stream q", "r", 0, "t"), sink_id="sink")
    assert model.visible == [(0, 0), (0, 1)]


def test_write_tried_again_after_a_failed_commit_is_refused(model: CoordinatorModel) -> None:
    """It is decided, so it is not doubled; nor taken for the next write of the function."""
    preparation = run(commit_of(model).prepare())
    decided_only(model, written(model, preparation, 0))
    for _ in range(2):
        with pytest.raises(SinkConflictError, match="Let the error of a write end the function"):
            chosen(run(commit_of(model).prepare()), 0)
    run(commit_of(model).resolve())
    with pytest.raises(SinkConflictError, match="Let the error of a write end the function"):
        chosen(run(commit_of(model).prepare()), 0)
    assert chosen(run(commit_of(model).prepare()), 1).batch == 1


def test_write_tried_again_after_an_undecided_failure_is_done(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    failed = written(model, run(commit.prepare()), 0)
    model.time_out(IDS.data_id(failed.preparation.lane, 0, 0))
    with pytest.raises(UndecidedBatchError):
        run(commit.commit([failed]))
    run(commit.abort([failed]))
    run(commit.commit([written(model, run(commit.prepare()), 0)]))
    assert model.visible == [(0, 0)]


def test_writes_of_a_batch_side_by_side_are_refused(model: CoordinatorModel) -> None:
    """As those of two threads: which of them is repeated after a crash cannot be told."""
    commit = commit_of(model)
    run(commit.commit([written(model, run(commit.prepare()), 0)]))
    both = [written(model, run(commit.prepare()), 1, number=number) for number in range(2)]
    run(commit.commit(both[1:]))
    with pytest.raises(SupersededError, match="or writes of one batch run side by side, give each a sinkId of its own"):
        run(commit.commit(both[:1]))
    run(commit.abort(both[:1]))
    assert model.visible == [(0, 0), (1, 1)]


# Errors from the decision on: none may read as if nothing was decided


class FailingCluster(ModelCluster):
    """Loses answers from one step of a commit on.

    Args:
        model: of the cluster.
        step: `decision`: of the decision, which is written; `sweep`: of the search for strays after the round;
            `mark`: of the mark that the batch is finished.
    """

    def __init__(self, model: CoordinatorModel, step: str) -> None:
        super().__init__(model, impatience=0)
        self._step = step
        self._decisions = 0

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        self._decisions += 1
        if self._step == "mark" and self._decisions == 2:
            raise NoAnswerError("no answer in 15 s")
        found = await super().write_decision(coordinator, offsets)
        if self._step == "decision":
            raise NoAnswerError("no answer in 15 s")
        return found

    async def ongoing_ids(self, prefix: str) -> Collection[str]:
        if self._step == "sweep" and self._decisions:
            raise NoAnswerError("no answer in 15 s")
        return await super().ongoing_ids(prefix)


@pytest.mark.parametrize("query, cure", [("stream q", r"\. The next start of the query finds out"), ("run 1", "")])
def test_decision_without_an_answer_is_uncertain(model: CoordinatorModel, query: str, cure: str) -> None:
    """It is found by the abort that follows, which commits then."""
    commit = SinkCommit(IDS, FailingCluster(model, "decision"), 3)
    task = written(model, run(commit.prepare()), 0, query=query)
    with pytest.raises(UncertainCommitError, match=f"says whether the batch is decided: no answer in 15 s{cure}$"):
        run(commit.commit([task]))
    assert not model.visible
    run(commit.abort([task]))
    assert model.visible == [(0, 0)]
    last = run(commit.last_decision())
    assert last is not None
    assert (last.batch, last.query) == (0, query)


def test_refused_decision_is_told_as_refused(model: CoordinatorModel) -> None:
    """A user may describe the topic, and not read it: nothing is decided."""

    class Refusing(ModelCluster):
        async def write_decision(
            self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
        ) -> PreparedTransaction:
            del coordinator, offsets
            raise TopicAuthorizationError("offsets of topic 'orders'")

    commit = SinkCommit(IDS, Refusing(model, impatience=0), 3)
    task = written(model, run(commit_of(model).prepare()), 0)
    with pytest.raises(TopicAuthorizationError, match="offsets of topic 'orders'"):
        run(commit.commit([task]))
    assert not model.visible


@pytest.mark.parametrize("step", ["sweep", "mark"])
def test_error_after_the_round_says_that_the_batch_is_decided(model: CoordinatorModel, step: str) -> None:
    commit = SinkCommit(IDS, FailingCluster(model, step), 3)
    task = written(model, run(commit.prepare()), 0, query="run 1")
    cure = "`aioproducer txn resolve --sink sink` does the rest, if done before the transactionTimeout of its tasks"
    with pytest.raises(
        UnfinishedCommitError, match=rf"batch 0 of \[run 1\] is decided, but .*no answer in 15 s\. {cure}$"
    ):
        run(commit.commit([task], is_last=True))
    assert model.visible == [(0, 0)]


@pytest.mark.parametrize("step", ["sweep", "mark"])
def test_error_after_the_round_fails_no_stream(model: CoordinatorModel, step: str) -> None:
    """All is committed; the next batch does the rest."""
    commit = SinkCommit(IDS, FailingCluster(model, step), 3)
    run(commit.commit([written(model, run(commit.prepare()), 0)]))
    run(commit_of(model).commit([written(model, run(commit_of(model).prepare()), 1)]))
    assert model.visible == [(0, 0), (1, 0)]


def test_stray_is_left_to_a_driver_that_has_prepared_since(model: CoordinatorModel) -> None:
    """It may be one of its tasks'."""
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0)
    stray = IDS.data_id(7, 7, 0)
    model.add_rows(model.initialise(stray), [(0, 7)])

    class Overtaken(ModelCluster):
        async def ongoing_ids(self, prefix: str) -> Collection[str]:
            model.initialise(IDS.coordinator)
            return await super().ongoing_ids(prefix)

    run(SinkCommit(IDS, Overtaken(model, impatience=0), 3).commit([task]))
    assert (model.visible, model.ongoing("sink.")) == ([(0, 0)], [stray])


def test_lost_tasks_after_twenty_are_counted(model: CoordinatorModel) -> None:
    """The error has them all; its text the rows of all, and the ids of twenty."""
    preparation = run(commit_of(model).prepare())
    tasks = []
    for number in range(25):
        transaction = model.initialise(IDS.data_id(preparation.lane, number, 0))
        model.add_rows(transaction, [(0, number)])
        entry = TaskEntry.of(transaction, partition=number, attempt=0, rows=3)
        tasks.append(WrittenTask(preparation, chosen(preparation, 0), entry))

    class Late(ModelCluster):
        async def write_decision(
            self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
        ) -> PreparedTransaction:
            found = await super().write_decision(coordinator, offsets)
            for number in range(2, 25):
                model.time_out(IDS.data_id(preparation.lane, number, 0))
            return found

    with pytest.raises(LostTransactionsError, match=r"23 of its 25 .* 69 rows are missing.* and 3 more$") as caught:
        run(SinkCommit(IDS, Late(model, impatience=0), 3).commit(tasks))
    assert [each.partition for each in caught.value.entries] == list(range(2, 25))
    assert str(caught.value).count("(3 rows)") == 20


def test_job_that_was_finished_before_changes_nothing(model: CoordinatorModel) -> None:
    last = Decision(query="run 1", batch=0)
    task = WrittenTask(Preparation(PreparedTransaction("s.coord", 1, 0, 2), last), last, None, is_skipped=True)
    run(commit_of(model).commit([task]))

    assert model.offsets == {}
