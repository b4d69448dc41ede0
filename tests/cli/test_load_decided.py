"""`aioproducer load --exactly-once` that fails: it says that nothing is visible only if that is known."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer import OffsetAndMetadata, PreparedTransaction
from aioproducer._admin.cluster_requests import NoResponseError
from aioproducer.cli.load import run
from aioproducer.cli.load.run import RunDecision, RunState
from aioproducer.cli.load.settings import LoadSettings
from aioproducer.cli.process import tell
from aioproducer.errors import ProducerFencedError
from aioproducer.spark import _options
from aioproducer.spark._commit import LostTransactionsError, SinkCommit, WrittenTask
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.testing import ApiKey, FakeCluster, Where
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

ROWS = 20


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"t": 1}, auto_create_topics=False) as cluster:
        yield cluster


class Load:
    """A load of one file; its errors and what is visible afterwards."""

    def __init__(self, cluster: ThreadedFakeCluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._folder = folder
        self._capsys = capsys
        pq.write_table(pa.table({"value": [str(number) for number in range(ROWS)]}), folder / "rows.parquet")

    def settings(self, run_id: str | None) -> LoadSettings:
        return LoadSettings(
            paths=[str(self._folder / "rows.parquet")],
            topic="t",
            bootstrap_server=self._cluster.bootstrap_servers,
            key=None,
            value=None,
            is_json=False,
            format="parquet",
            master=None,
            conf=[],
            tasks=None,
            sql=None,
            properties=[],
            exactly_once=True,
            sink="s",
            run_id=run_id,
            rate=None,
            dry_run=False,
            report=str(self._folder / "report.json"),
        )

    def run(self, run_id: str | None = "monday") -> tuple[int, str, int]:
        """Return the exit code, the error and the advice in one line, and how many records are visible."""
        code = run.run_load(self.settings(run_id), is_verbose=False)
        line = ". ".join(self._capsys.readouterr().err.splitlines()[-2:])
        return code, line, len(self._cluster.committed_records("t", 0))

    @property
    def outcome(self) -> str:
        outcome: str = json.loads((self._folder / "report.json").read_text("utf-8"))["outcome"]
        return outcome


@pytest.fixture
def load(cluster: ThreadedFakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Load:
    return Load(cluster, tmp_path, capsys)


def fail_at(
    monkeypatch: pytest.MonkeyPatch, place: tuple[str, int], error: BaseException, *, is_done: bool = False
) -> None:
    """Let the n-th call of a method of `SinkCluster` fail, before or after it has done its work."""
    method, call = place
    real = getattr(SinkCluster, method)
    calls = 0

    async def failing(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls != call:
            return await real(*arguments, **named)
        if is_done:
            await real(*arguments, **named)
        raise error

    monkeypatch.setattr(SinkCluster, method, failing)


NO_ANSWER = NoResponseError("no answer in 15 s")


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def test_decision_whose_answers_are_lost_is_found(
    load: Load, cluster: ThreadedFakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker decides, and the connection breaks each time before its answer."""
    monkeypatch.setattr(_options, "COMMIT_TIMEOUT_MS", 400)
    coordinator = Where(api=ApiKey.END_TXN, client_id="aioproducer-spark")
    fault = cluster.faults.drop_connection(coordinator, after_append=True, times=None)
    real = SinkCommit.abort

    async def abort(commit: SinkCommit, tasks: Sequence[WrittenTask]) -> None:
        cluster.faults.remove(fault)  # the network works again when the load aborts
        await real(commit, tasks)

    monkeypatch.setattr(SinkCommit, "abort", abort)
    code, line, visible = load.run()
    assert (code, visible, load.outcome) == (4, ROWS, "decided, unfinished")
    assert "no answer says whether the batch is decided: no answer in 0.4 s" in line
    assert line.endswith(
        "[run monday] is decided: `aioproducer txn resolve --sink s` makes all of it visible, if done before the "
        "transactionTimeout of its tasks; a second load with --run-id monday does the same, and sends nothing twice "
        "unless another run of the sink came between"
    )
    assert load.run() == (0, "aioproducer: run monday of sink s was finished before: nothing was sent", ROWS)


@pytest.mark.parametrize(
    "place", [("ongoing_ids", 2), ("write_decision", 2)], ids=["sweep after the round", "mark as finished"]
)
def test_failure_after_the_round_is_no_failure_before_it(
    load: Load, monkeypatch: pytest.MonkeyPatch, place: tuple[str, int]
) -> None:
    """As of a node that has just died."""
    fail_at(monkeypatch, place, NO_ANSWER)
    code, line, visible = load.run(None)
    assert (code, visible, load.outcome) == (4, ROWS, "decided, unfinished")
    assert "is decided, but its commit did not come to its end: no answer in 15 s" in line
    assert line.endswith("a second load would send all of it again, because this one has no --run-id")


@pytest.mark.parametrize(
    "api, code, refusal, said",
    [
        (ApiKey.TXN_OFFSET_COMMIT, 29, "TOPIC_AUTHORIZATION_FAILED", False),
        (ApiKey.TXN_OFFSET_COMMIT, 12, "OFFSET_METADATA_TOO_LARGE", False),
        (ApiKey.END_TXN, 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True),
    ],
)
def test_refused_decision_is_told_as_refused(
    load: Load, cluster: ThreadedFakeCluster, *, api: ApiKey, code: int, refusal: str, said: bool
) -> None:
    """Only the request that decides may leave open whether it has."""
    cluster.faults.error(code, Where(api=api, client_id="aioproducer-spark"))
    exit_code, line, visible = load.run()
    assert (exit_code, visible, load.outcome) == (1, 0, "failed")
    assert refusal in line
    assert ("no answer says" in line) is said
    assert line.endswith("Nothing of this run is visible")


def test_decision_that_was_never_written_leaves_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster says so when it is asked again."""
    fail_at(monkeypatch, ("write_decision", 1), NO_ANSWER)
    code, line, visible = load.run()
    assert (code, visible, load.outcome) == (1, 0, "failed")
    assert line.endswith("Nothing of this run is visible")


def test_unknown_is_said_if_no_one_answers(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the decision nor the question afterwards."""
    fail_at(monkeypatch, ("write_decision", 1), NO_ANSWER, is_done=True)
    fail_at(monkeypatch, ("fetch_decision", 3), NO_ANSWER)  # of the abort
    fail_at(monkeypatch, ("fetch_decision", 4), NO_ANSWER)  # of the question
    code, line, _ = load.run()
    assert (code, load.outcome) == (4, "not known")
    assert "It is not known whether [run monday] is visible: `aioproducer txn resolve --sink s` says" in line
    assert "Nothing" not in line


def test_signal_while_the_cluster_is_asked_loses_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is told before the question."""
    fail_at(monkeypatch, ("write_decision", 1), NO_ANSWER, is_done=True)
    fail_at(monkeypatch, ("fetch_decision", 3), NO_ANSWER)  # of the abort
    fail_at(monkeypatch, ("fetch_decision", 4), KeyboardInterrupt())  # of the question
    code, line, _ = load.run()
    assert (code, load.outcome) == (4, "not known")
    assert "no answer says whether the batch is decided" in line
    assert "It is not known whether [run monday] is visible" in line


def test_second_signal_is_told(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the load asks what the first has left."""
    fail_at(monkeypatch, ("write_decision", 1), KeyboardInterrupt(), is_done=True)
    monkeypatch.setattr(RunDecision, "after_interrupt", interrupt)
    code, line, _ = load.run()
    assert (code, load.outcome) == (130, "interrupted")
    assert "interrupted twice. It is not known whether [run monday] is visible" in line


@pytest.mark.parametrize("is_done", [False, True])
def test_refused_decision_is_looked_for(load: Load, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> None:
    """It may be the repetition of one that was written; and if no other driver decides or writes, this one goes on."""
    fail_at(monkeypatch, ("write_decision", 1), ProducerFencedError("fenced"), is_done=is_done)
    assert load.run()[::2] == (0, ROWS)


def test_run_that_another_has_followed_is_not_known(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last decision no longer says whether this one was decided too."""
    settings = load.settings("monday")
    decision = RunDecision(settings.parsed_options(), settings.query)
    decision.look()
    assert decision.after_error("UncertainCommitError") is RunState.UNDECIDED
    assert decision.after_error("Py4JNetworkError") is RunState.UNKNOWN  # its commit may still run

    assert load.run("other")[0] == 0
    assert decision.after_error("UncertainCommitError") is RunState.OVERTAKEN
    assert decision.after_error("TaskError") is RunState.UNDECIDED
    assert decision.after_interrupt() is RunState.OVERTAKEN
    assert not decision.was_decided_before

    monkeypatch.setattr(RunDecision, "after_error", lambda *_: RunState.OVERTAKEN)
    fail_at(monkeypatch, ("write_decision", 2), NO_ANSWER)
    code, line, _ = load.run()
    assert (code, load.outcome) == (4, "not known")
    assert line.endswith("another run of sink s was decided since: look into t before you load again")


@pytest.mark.parametrize("name", ["NoResponseError", "BrokerError", "ConfigurationError"])
def test_error_that_may_be_that_of_the_abort_is_asked_about(load: Load, name: str) -> None:
    """Spark tells the abort's error in place of the load's."""
    settings = load.settings("monday")
    here, on_spark = (
        RunDecision(settings.parsed_options(), settings.query, is_on_spark=each) for each in (False, True)
    )
    here.look()
    on_spark.look()
    assert load.run()[0] == 0
    assert here.after_error(name) is RunState.UNDECIDED
    assert on_spark.after_error(name) is RunState.DECIDED
    assert on_spark.after_error("TaskError") is RunState.UNDECIDED


@pytest.mark.parametrize(
    "name, said", [("ConnectionRefusedError", "Spark's JVM has ended: refused"), ("ValueError", "refused")]
)
def test_dead_jvm_is_named(load: Load, capsys: pytest.CaptureFixture[str], *, name: str, said: str) -> None:
    settings = replace(load.settings("monday"), master="local[2]")
    assert run.LoadRun(settings, is_verbose=False).tell_failed(name, "refused") == 1
    assert capsys.readouterr().err == f"aioproducer: {said}\n"


def test_finished_run_that_fails_again_is_not_invisible(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is there from the first time."""
    assert load.run()[0] == 0
    fail_at(monkeypatch, ("init_producer_id", 2), NO_ANSWER)
    code, line, visible = load.run()
    assert (code, visible) == (4, ROWS)
    assert "Nothing" not in line


def test_decision_of_a_dead_load_is_not_waited_for(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died between its two requests: until the coordinator's transaction ends, no one can read the decision."""
    real = SinkCluster._commit_offsets  # noqa: SLF001  # the first of them

    async def commit_and_die(*arguments: object) -> None:
        await real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr(SinkCluster, "_commit_offsets", commit_and_die)
    monkeypatch.setattr(run.LoadRun, "tell_interrupted", lambda _: tell("killed"))
    monkeypatch.setattr(SinkCommit, "abort", nothing)
    assert load.run("sunday")[0] == 130
    monkeypatch.undo()
    assert load.run("monday")[::2] == (0, ROWS)


def test_lost_rows_are_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program uses the transactional id between the decision and the commit."""
    real = SinkCluster.write_decision

    async def decide_and_lose(
        sink: SinkCluster, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        found = await real(sink, coordinator, offsets)
        await sink.init_producer_id("s.1.0.0")
        return found

    monkeypatch.setattr(SinkCluster, "write_decision", decide_and_lose)
    monkeypatch.setattr(RunDecision, "after_error", interrupt)  # the error says enough
    code, line, visible = load.run()
    assert (code, visible, load.outcome) == (3, 0, "decided, rows lost")
    assert line.endswith("20 rows are missing: s.1.0.0 (20 rows)")


@pytest.mark.parametrize("state", RunState)
def test_lost_rows_of_another_run_keep_their_code(load: Load, monkeypatch: pytest.MonkeyPatch, state: RunState) -> None:
    fail_at(monkeypatch, ("end_transactions", 1), LostTransactionsError("[run sunday] is decided, but 3 rows miss"))
    monkeypatch.setattr(RunDecision, "after_error", lambda *_: state)
    code, line, _ = load.run()
    assert code == 3
    assert "[run sunday] is decided, but 3 rows miss" in line
    assert ("Nothing of this run is visible" in line) is (state is RunState.UNDECIDED)


@pytest.mark.parametrize(
    "state, said",
    [
        (RunState.UNKNOWN, "[run monday] is decided: `aioproducer txn resolve --sink s` makes"),
        (RunState.OVERTAKEN, "It is not known whether all of [run monday] is visible, because another run"),
    ],
)
def test_run_that_its_error_calls_decided_is_not_called_unknown(
    load: Load, monkeypatch: pytest.MonkeyPatch, *, state: RunState, said: str
) -> None:
    fail_at(monkeypatch, ("write_decision", 2), NO_ANSWER)
    monkeypatch.setattr(RunDecision, "after_error", lambda *_: state)
    code, line, _ = load.run()
    assert code == 4
    assert "[run monday] is decided, but its commit did not come to its end" in line
    assert said in line


def test_earlier_run_that_is_unfinished_is_not_this_one(load: Load, cluster: ThreadedFakeCluster) -> None:
    """The error is about the run before; nothing of this one was sent, and so it says nothing of it."""
    fault = cluster.faults.error(53, Where(api=ApiKey.END_TXN, client_id="aioproducer-spark"), times=None, skip=1)
    code, line, visible = load.run("sunday")
    assert (code, visible) == (4, 0)
    assert "[run sunday] is decided: `aioproducer txn resolve --sink s` makes all of it visible, if done before" in line
    code, line, visible = load.run("monday")
    assert (code, visible, load.outcome) == (4, 0, "failed")
    assert "batch 0 of [run sunday] is decided" in line
    assert "monday" not in line
    cluster.faults.remove(fault)
    assert [load.run(run_id)[::2] for run_id in ("sunday", "monday")] == [(0, ROWS), (0, 2 * ROWS)]


def test_failure_before_anything_was_sent_says_nothing_of_it(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an earlier run under this id is visible is not known."""
    fail_at(monkeypatch, ("fetch_decision", 1), NO_ANSWER)
    assert load.run() == (1, "aioproducer: no answer in 15 s", 0)


def test_failure_of_a_task_leaves_nothing(load: Load, cluster: ThreadedFakeCluster) -> None:
    """No question to the cluster is needed."""
    cluster.faults.error(29, Where(api=ApiKey.PRODUCE), times=None)
    code, line, visible = load.run()
    assert (code, visible, load.outcome) == (1, 0, "failed")
    assert line.endswith("Nothing of this run is visible")
