"""Single steps of the commit, over the model of the coordinator."""

from random import Random

import pytest

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import ProducerFencedError
from aioproducer.spark._commit import (
    BatchAction,
    Preparation,
    SinkCommit,
    SinkConflictError,
    UndecidedBatchError,
    WrittenTask,
    batch_action,
)
from aioproducer.spark._decision import SinkIds, TaskEntry, decode_decision
from tests.spark.coordinator_model import CoordinatorModel, ModelCluster, finished, run

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


def test_prepare_aborts_what_is_open_also_when_nothing_was_ever_decided(model: CoordinatorModel) -> None:
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


def test_a_transaction_that_has_ended_before_the_decision_leaves_the_batch_undecided(model: CoordinatorModel) -> None:
    commit = commit_of(model)
    task = written(model, run(commit.prepare()), 0)
    model.time_out("sink.0.0.0")
    with pytest.raises(UndecidedBatchError, match=r"1 of 1 transactions ended .*sink\.0\.0\.0 \(1 rows\)"):
        run(commit.commit([task]))
    assert decode_decision(model.offsets) is None


def test_the_last_batch_of_a_job_is_marked_as_finished_so_that_its_ids_may_expire(model: CoordinatorModel) -> None:
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
