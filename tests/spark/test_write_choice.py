"""What a task does with its rows, by the last decision of the sink."""

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._decision_record import Decision
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._write_choice import BatchAction, SinkConflictError, WriteName, choose

WRITE, SKIP = BatchAction.WRITE, BatchAction.SKIP
LAST = Decision(query="stream q", run="r", batch=4, writes=("a", "b"), position=2, is_finished=True)


def name_of(batch: int | None, *, query: str = "stream q", run: str = "r", topic: str = "") -> WriteName:
    return WriteName(query, run, batch, topic)


class Task:
    """Stands in for Spark's context of a task."""

    def __init__(self, batch: str | None) -> None:
        self._given = {"streaming.sql.batchId": batch, "spark.jobGroup.id": "r", "sql.streaming.queryId": "q"}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  # Spark's name
        return self._given.get(name)


def named(of_spark: str | None, given: str | None, *, exactly_once: bool = True) -> WriteName:
    """Return the name of a write, by the number of its batch."""
    writer = pytest.importorskip("aioproducer.spark._writer")
    options = {"kafka.bootstrap.servers": "b1:9092", "topic": "t"} | ({} if given is None else {"batchId": given})
    options |= {"exactlyOnce": "true", "sinkId": "s"} if exactly_once else {}
    sink = writer.SinkWriter(SinkOptions.parse(options), SinkColumns(frozenset({"value"}), has_seconds=False))
    name: WriteName = sink._name(Task(of_spark))  # noqa: SLF001  # what Spark calls needs a session
    return name


def test_number_of_a_batch_is_that_of_spark() -> None:
    """An option with another one would have rows skipped, as those of a batch that is decided."""
    assert named("7", None) == named("7", "7") == WriteName("stream q", "r", 7, "t")
    assert named(None, None).batch is None
    assert named(None, "7", exactly_once=False).batch == 7  # a thread of a foreachBatch function; for the report alone
    with pytest.raises(ConfigurationError, match="batchId=0: Spark's number of this batch is 7"):
        named("7", "0")
    with pytest.raises(ConfigurationError, match=r"batchId=0: Spark says of no batch of a stream.*over Spark Connect"):
        named(None, "0")


@pytest.mark.parametrize("batch", [0, 57])
def test_any_batch_is_the_first_of_a_new_sink(batch: int) -> None:
    action, record = choose(None, name_of(batch), sink_id="sink")
    assert (action, record.batch, record.position) == (WRITE, batch, 1)


@pytest.mark.parametrize("run", ["r", "another"])
@pytest.mark.parametrize("batch", [5, 6, 7, 1_000])
def test_batches_may_be_left_out(batch: int, run: str) -> None:
    """Also after a restart."""
    action, record = choose(LAST, name_of(batch, run=run, topic="c"), sink_id="sink")
    assert (action, record.batch, record.writes, record.run) == (WRITE, batch, ("c",), run)


def test_last_batch_is_repeated_by_another_run() -> None:
    action, record = choose(LAST, name_of(4, run="another", topic="a"), sink_id="sink")
    assert (action, record.position, record.run, record.former_runs) == (SKIP, 1, "another", ("r",))
    action, record = choose(record, name_of(4, run="another", topic="b"), sink_id="sink")
    assert (action, record.position) == (SKIP, 2)
    action, record = choose(record, name_of(4, run="another", topic="c"), sink_id="sink")
    assert (action, record.position, record.writes) == (WRITE, 3, ("a", "b", "c"))


def test_next_write_of_the_same_run_is_done() -> None:
    action, record = choose(LAST, name_of(4, topic="a"), sink_id="sink")
    assert (action, record.writes, record.is_finished) == (WRITE, ("a", "b", "a"), False)


@pytest.mark.parametrize("batch", [0, 3])
def test_older_checkpoint_is_named(batch: int) -> None:
    with pytest.raises(SinkConflictError, match=rf"batch 4 .* this is batch {batch}: an older checkpoint was restored"):
        choose(LAST, name_of(batch), sink_id="sink")


@pytest.mark.parametrize("batch", [0, 4, 5])
def test_another_query_is_named(batch: int) -> None:
    """A deleted checkpoint makes one."""
    with pytest.raises(SinkConflictError, match=r"another query: batch 4 of \[stream q\] .*txn reset --sink sink"):
        choose(LAST, name_of(batch, query="stream other"), sink_id="sink")


def test_writes_in_another_order_are_refused() -> None:
    with pytest.raises(SinkConflictError, match="write 1 of batch 4 went to topic 'a'; this one goes to topic 'b'"):
        choose(LAST, name_of(4, run="another", topic="b"), sink_id="sink")


def test_run_that_was_overtaken_is_refused() -> None:
    _, record = choose(LAST, name_of(5, run="another"), sink_id="sink")
    for batch in (4, 5, 6):
        with pytest.raises(SinkConflictError, match=r"run another of \[stream q\] has taken over from this one, r,"):
            choose(record, name_of(batch), sink_id="sink")


def test_job_is_written_once() -> None:
    job = name_of(None, query="run monday", run="", topic="t")
    action, record = choose(None, job, sink_id="sink")
    assert (action, record.batch) == (WRITE, 0)
    assert choose(record.finished(), job, sink_id="sink").action is SKIP
    action, record = choose(record, job._replace(query="run tuesday"), sink_id="sink")
    assert (action, record.batch) == (WRITE, 1)


def test_second_output_of_a_job_under_its_run_id_is_refused() -> None:
    """It would be taken for a repetition of the first."""
    job = name_of(None, query="run monday", run="", topic="t")
    record = choose(None, job, sink_id="sink").record.finished()
    with pytest.raises(SinkConflictError, match=r"went to topic 't'; this one goes to topic 'u'.*a sinkId of its own"):
        choose(record, job._replace(topic="u"), sink_id="sink")


def test_job_under_the_sink_of_a_stream_is_refused() -> None:
    with pytest.raises(SinkConflictError, match=r"belongs to \[stream q\], which is a stream: .*reset --sink sink"):
        choose(LAST, name_of(None, query="run monday", run=""), sink_id="sink")
    job = choose(None, name_of(None, query="run monday", run=""), sink_id="sink").record
    with pytest.raises(SinkConflictError, match=r"belongs to jobs, the last \[run monday\]"):
        choose(job, name_of(0), sink_id="sink")
