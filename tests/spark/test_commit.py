"""Single steps of the commit, over the model of the coordinator."""

from collections.abc import Collection, Mapping, Sequence
from random import Random

import pytest

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import KafkaError, ProducerFencedError, TopicAuthorizationError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._commit import (
    BatchAction,
    LostTransactionsError,
    Preparation,
    SinkCommit,
    SinkConflictError,
    SupersededError,
    UncertainCommitError,
    UndecidedBatchError,
    UnfinishedCommitError,
    WrittenTask,
    batch_action,
    run_action,
)
from aioproducer.spark._decision_record import SinkIds, TaskEntry, decode_decision
from tests.spark.coordinator_model import CoordinatorModel, ModelCluster, NoAnswerError, finished, run

IDS = SinkIds("sink")


@pytest.fixture(params=[1, 2])
def model(request: pytest.FixtureRequest) -> CoordinatorModel:
    return CoordinatorModel(Random(1), request.param)


def commit_of(model: CoordinatorModel) -> SinkCommit:
    return SinkCommit(IDS, ModelCluster(model, impatience=0), 3)


def written(model: CoordinatorModel, preparation: Preparation, batch: int, *, query: str = "stream q") -> WrittenTask:
    transaction = model.initialise(IDS.data_id(batch, 0, 0))
    model.add_rows(transaction, [(batch, 0)])
    entry = TaskEntry.of(transaction, partition=0, attempt=0, rows=1)
    return WrittenTask(preparation, batch, query, entry)


def preparation_after(batch: int | None, query: str | None) -> Preparation:
    return Preparation(PreparedTransaction("sink.coord", 1, 0, 2), batch, query)


@pytest.mark.parametrize(
    "last, batch, action",
    [
        ((None, None), 0, BatchAction.WRITE),
        ((None, None), 57, BatchAction.WRITE),
        ((4, "q"), 5, BatchAction.WRITE),
        ((4, "q"), 4, BatchAction.SKIP),
        ((4, "q"), 3, None),
        ((4, "q"), 0, None),
        ((4, "q"), 6, None),
        ((4, "old"), 4, None),
        ((4, "old"), 5, None),
        ((4, "old"), 0, None),
    ],
)
def test_a_batch_is_skipped_only_if_it_is_the_last_decided_one(
    last: tuple[int | None, str | None], batch: int, action: BatchAction | None
) -> None:
    after = preparation_after(*last)
    if action is not None:
        assert batch_action(after, sink_id="sink", batch=batch, query="q") is action
        return
    with pytest.raises(SinkConflictError, match=rf"last decided batch is 4 of \[{last[1]}\].*txn reset --sink sink"):
        batch_action(after, sink_id="sink", batch=batch, query="q")


@pytest.mark.parametrize(
    "last, expected",
    [
        ((None, None), (BatchAction.WRITE, 0)),
        ((4, "run monday"), (BatchAction.SKIP, 4)),
        ((4, "run sunday"), (BatchAction.WRITE, 5)),
    ],
)
def test_run_is_skipped_only_if_it_is_the_last_decided_one(
    last: tuple[int | None, str | None], expected: tuple[BatchAction, int]
) -> None:
    assert run_action(preparation_after(*last), sink_id="sink", query="run monday") == expected


def test_run_under_the_sink_of_a_stream_is_refused() -> None:
    with pytest.raises(SinkConflictError, match=r"belongs to \[stream q\], which is a stream: .*reset --sink sink"):
        run_action(preparation_after(4, "stream q"), sink_id="sink", query="run monday")


def test_prepare_aborts_what_is_open_if_nothing_was_decided(model: CoordinatorModel) -> None:
    for batch in (0, 1):
        model.add_rows(model.initialise(IDS.data_id(batch, 5, 0)), [(batch, 0)])
    other = model.initialise("sink.else")
    model.add_rows(other, [(9, 9)])
    assert run(commit_of(model).prepare()).last_batch is None
    assert model.ongoing("sink.") == ["sink.else"]


def test_a_batch_without_rows_is_decided_too(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    preparation = run(commit.prepare())
    run(commit.commit([WrittenTask(preparation, 0, "stream q", None)]))
    assert batch_action(run(commit.prepare()), sink_id="sink", batch=1, query="stream q") is BatchAction.WRITE


@pytest.mark.parametrize(
    "query, said", [("stream q", "visible, and the batch will be redone: sink"), ("run 1", "visible: sink")]
)
def test_batch_is_undecided_if_a_transaction_ended_before(model: CoordinatorModel, query: str, said: str) -> None:
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0, query=query)
    model.time_out("sink.0.0.0")
    with pytest.raises(UndecidedBatchError, match=r"1 of 1 transactions ended .*sink\.0\.0\.0 \(1 rows\)") as caught:
        run(commit.commit([task]))
    assert said in str(caught.value)
    assert decode_decision(model.offsets) is None


def test_last_batch_is_marked_as_finished_for_its_ids_to_expire(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    run(commit.commit([written(model, run(commit.prepare()), 0, query="run 1")], is_last=True))
    del model.identities["sink.0.0.0"]
    assert run(commit.prepare()).last_query == "run 1"
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
    assert run(commit.prepare()).last_batch is None


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
def test_abort_of_an_overtaken_driver_leaves_the_sink_alone(model: CoordinatorModel, *, is_redone: bool) -> None:
    """Unless the newer driver has decided the same batch: then its transactions are committed once more."""
    old, new = commit_of(model), commit_of(model)
    late = written(model, run(old.prepare()), 0)
    again = written(model, run(new.prepare()), 0)
    if is_redone:
        run(new.commit([again]))
    run(old.abort([late]))
    assert model.visible == ([(0, 0)] if is_redone else [])
    assert model.ongoing("sink.") == ([] if is_redone else ["sink.0.0.0"])


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
    assert run(commit_of(model).prepare()).last_batch == 0
    assert model.visible == [(0, 0)]


def test_loss_that_is_accepted_is_not_told_again(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    run(commit.accept_loss())  # nothing was decided
    task = written(model, run(commit.prepare()), 0)
    decision = commit.commit([task])
    while not model.offsets:
        assert not finished(decision)
    decision.close()
    model.time_out("sink.0.0.0")
    with pytest.raises(LostTransactionsError, match="1 rows are missing"):
        run(commit.prepare())
    run(commit.accept_loss())
    assert run(commit.prepare()).last_batch == 0


def test_loss_that_another_has_forgotten_needs_no_mark(model: CoordinatorModel) -> None:
    """`txn reset` came between."""
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0)
    decision = commit.commit([task])
    while not model.offsets:
        assert not finished(decision)
    decision.close()
    model.time_out("sink.0.0.0")

    class Forgetting(ModelCluster):
        async def fetch_decision(self) -> Mapping[int, OffsetAndMetadata]:
            found = await super().fetch_decision()
            model.offsets.clear()
            return found

    run(SinkCommit(IDS, Forgetting(model, impatience=0), 3).accept_loss())
    assert model.offsets == {}


def test_the_decision_of_an_older_driver_is_refused(model: CoordinatorModel) -> None:
    old, new = commit_of(model), commit_of(model)
    task = written(model, run(old.prepare()), 0)
    decision = old.commit([task])
    for _ in range(2):  # the old driver has looked at its transactions and stands before the decision
        assert not finished(decision)
    run(new.prepare())
    with pytest.raises(Exception, match="another driver works under this sinkId") as raised:
        run(decision)
    assert isinstance(raised.value.__cause__, ProducerFencedError)
    assert not model.visible


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


def test_overtaken_commit_says_that_the_batch_is_decided(model: CoordinatorModel) -> None:
    """A newer driver comes between the decision and the sweep, which finds a stray."""
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0)
    model.add_rows(model.initialise(IDS.data_id(0, 7, 0)), [(0, 7)])

    class Overtaken(ModelCluster):
        async def ongoing_ids(self, prefix: str) -> Collection[str]:
            model.initialise(IDS.coordinator)
            return await super().ongoing_ids(prefix)

    with pytest.raises(
        UnfinishedCommitError, match=r"is decided, but .*another driver works under this sinkId"
    ) as caught:
        run(SinkCommit(IDS, Overtaken(model, impatience=0), 3).commit([task]))
    assert isinstance(caught.value.__cause__, SupersededError)
    assert model.visible == [(0, 0)]


def test_lost_tasks_after_twenty_are_counted(model: CoordinatorModel) -> None:
    """The error has them all; its text the rows of all, and the ids of twenty."""
    preparation = run(commit_of(model).prepare())
    tasks = []
    for number in range(25):
        transaction = model.initialise(IDS.data_id(0, number, 0))
        model.add_rows(transaction, [(0, number)])
        entry = TaskEntry.of(transaction, partition=number, attempt=0, rows=3)
        tasks.append(WrittenTask(preparation, 0, "stream q", entry))

    class Late(ModelCluster):
        async def write_decision(
            self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
        ) -> PreparedTransaction:
            found = await super().write_decision(coordinator, offsets)
            for number in range(2, 25):
                model.time_out(IDS.data_id(0, number, 0))
            return found

    with pytest.raises(LostTransactionsError, match=r"23 of its 25 .* 69 rows are missing.* and 3 more$") as caught:
        run(SinkCommit(IDS, Late(model, impatience=0), 3).commit(tasks))
    assert [each.partition for each in caught.value.entries] == list(range(2, 25))
    assert str(caught.value).count("(3 rows)") == 20
