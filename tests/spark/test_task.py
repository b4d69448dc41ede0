"""A task sends Arrow batches to the embedded cluster: counts, order, errors with task and row, report. No Spark."""

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from aioproducer import Producer
from aioproducer.errors import UndeliveredError
from aioproducer.spark import _task
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._oversize import SizeLimit
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._report import PartitionRows, TaskCounts, batch_report, publish
from aioproducer.spark._task import TaskError, TaskSender
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, LoggedRecord, Where
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

TASK = 7
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FULL = TaskCounts(rows=1_000, bytes=5_000, batches=4, retries=7, partitions=(PartitionRows("t", 0, 1_000),))
CUT = FULL._replace(skipped=3)


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"a": 1, "b": 1}, auto_create_topics=False) as cluster:
        yield cluster


def send(
    cluster: ThreadedFakeCluster,
    batches: Sequence[pa.RecordBatch],
    *,
    has_seconds: bool = False,
    columns: Sequence[str] | None = None,
    **options: str,
) -> TaskCounts:
    """Send batches as a task does; the topic is `a` unless a column or an option says otherwise."""
    present = frozenset(columns or batches[0].schema.names)
    topic = {} if "topic" in present else {"topic": "a"}
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **topic, **options}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(present, has_seconds))
    counts, prepared = sender.send_all(iter(batches), task=TASK)
    assert prepared is None
    return counts


def values(count: int, *, start: int = 0, size: int = 0) -> pa.RecordBatch:
    """Return rows whose values are their numbers, at least of a size."""
    return pa.record_batch({"value": [str(row).encode().ljust(size) for row in range(start, start + count)]})


def sent(cluster: ThreadedFakeCluster, topic: str = "a") -> list[LoggedRecord]:
    """Return the records of a topic's only partition."""
    return cluster.records(topic, 0)


def test_rows_are_sent_in_order_and_counted(cluster: ThreadedFakeCluster) -> None:
    """Over a buffer that is smaller than a batch, so that each batch waits for room in its middle."""
    batches = [values(500, start=start, size=200) for start in range(0, 5_000, 500)]
    memory = {"kafka.buffer.memory": "65536", "kafka.batch.size": "16384"}
    counts = send(cluster, batches, **memory)
    assert [int(record.value or b"") for record in sent(cluster)] == list(range(5_000))
    assert (counts.rows, counts.skipped) == (5_000, 0)
    assert counts.batches > 50
    assert counts.bytes > 1_000_000
    assert counts.partitions == (("a", 0, 5_000),)


def test_rows_are_counted_by_partition_of_kafka(cluster: ThreadedFakeCluster) -> None:
    """Those that are left out are not."""
    sizes = {"kafka.max.request.size": "2000", "onOversize": "skip"}
    rows = pa.record_batch({"value": [b"1", b"2" * 3_000, b"3"], "topic": ["b", "a", "b"]})
    counts = send(cluster, [rows, pa.record_batch({"value": [b"4"], "topic": ["a"]})], **sizes)
    assert counts.partitions == (("a", 0, 1), ("b", 0, 2))
    report = batch_report([counts, counts], query="q", batch=None, transactions=0, commit_s=0.0)
    assert report["partitions"] == {"a": {"0": 2}, "b": {"0": 4}}
    assert (report["rows"], report["skipped"]) == (6, 2)


def test_retries_are_counted(cluster: ThreadedFakeCluster) -> None:
    cluster.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, Where(api=ApiKey.PRODUCE), times=1)
    counts = send(cluster, [values(5)])
    assert (counts.rows, counts.retries) == (5, 5)


def test_nothing_is_started_for_no_rows(cluster: ThreadedFakeCluster) -> None:
    """Batches without rows count as none."""
    assert send(cluster, [values(0), values(0)]) == TaskCounts()
    assert cluster.requests == []


def test_empty_batches_between_others(cluster: ThreadedFakeCluster) -> None:
    """Are passed over, and rows keep their numbers."""
    assert send(cluster, [values(0), values(2), values(0), values(2, start=2)]).rows == 4
    assert [record.value for record in sent(cluster)] == [b"0", b"1", b"2", b"3"]


def test_all_columns(cluster: ThreadedFakeCluster) -> None:
    """Nulls included: no key, a tombstone, no headers, the current time."""
    when = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "value": pa.array([b"v", None]),
            "key": pa.array(["k", None]),
            "partition": pa.array([0, None], pa.int32()),
            "timestamp": pa.array([when, None], pa.timestamp("us", tz="Europe/Berlin")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
        }
    )
    send(cluster, [batch])
    first, second = sent(cluster)
    assert (first.value, first.key, list(first.headers)) == (b"v", b"k", [("h", b"1")])
    assert first.timestamp == int(when.timestamp() * 1_000)
    assert (second.value, second.key, list(second.headers)) == (None, None, [])
    assert second.timestamp > first.timestamp


def test_timestamp_in_seconds(cluster: ThreadedFakeCluster) -> None:
    """A double, rounded to milliseconds' precision without an error of its binary form."""
    batch = pa.record_batch({"value": [b"v"], "timestamp": [1_700_000_000.129]})
    send(cluster, [batch], has_seconds=True)
    assert [record.timestamp for record in sent(cluster)] == [1_700_000_000_129]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300])
def test_timestamp_that_is_no_time(cluster: ThreadedFakeCluster, seconds: float) -> None:
    """Is named with its row."""
    batch = pa.record_batch({"value": [b"v", b"w"], "timestamp": [None, seconds]})
    with pytest.raises(TaskError, match=re.escape(f"task {TASK}, row 4: timestamp is {seconds}")):
        send(cluster, [pa.record_batch({"value": [b"v"] * 3, "timestamp": [1.0] * 3}), batch], has_seconds=True)


def test_constant_headers(cluster: ThreadedFakeCluster) -> None:
    """Go with each record."""
    send(cluster, [values(2)], **{"header.source": "spark"})
    assert [list(record.headers) for record in sent(cluster)] == [[("source", b"spark")]] * 2


def test_topics_from_a_column(cluster: ThreadedFakeCluster) -> None:
    """Each row goes to its own; rows of one topic keep their order."""
    send(cluster, [pa.record_batch({"topic": ["a", "b", "a"], "value": [b"1", b"2", b"3"]})])
    assert [record.value for record in sent(cluster, "a")] == [b"1", b"3"]
    assert [record.value for record in sent(cluster, "b")] == [b"2"]


def test_null_topic_is_named_with_its_row(cluster: ThreadedFakeCluster) -> None:
    """Counted over all batches of the task."""
    first, second = (pa.record_batch({"topic": ["a", last], "value": [b"", b""]}) for last in ("b", None))
    with pytest.raises(TaskError, match=f"task {TASK}, row 3: topic is null, and no option topic is given"):
        send(cluster, [first, second])


def test_refused_row_of_a_topic_column_has_its_number(cluster: ThreadedFakeCluster) -> None:
    """Not its place among the rows of its topic."""
    batch = pa.record_batch(
        {"topic": ["a", "b", "a", "b"], "value": [b""] * 4, "partition": pa.array([0, 0, 0, 5], pa.int32())}
    )
    with pytest.raises(TaskError, match=rf"task {TASK}, row 7, topic 'b': .*partition") as caught:
        send(cluster, [batch.slice(0, 3), batch.slice(0, 1), batch])
    assert "5" in str(caught.value)


def test_topic_that_does_not_exist_is_named_with_its_first_row(cluster: ThreadedFakeCluster) -> None:
    """After `max.block.ms`."""
    batch = pa.record_batch({"topic": ["a", "nowhere"], "value": [b"", b""]})
    with pytest.raises(TaskError, match=f"task {TASK}, row 1, topic 'nowhere'"):
        send(cluster, [batch], **{"kafka.max.block.ms": "200"})


def test_row_that_is_too_large(cluster: ThreadedFakeCluster) -> None:
    """Fails the task, or is left out and counted."""
    batches = [values(2), values(1, size=3_000), values(2)]
    small = {"kafka.max.request.size": "2000"}
    with pytest.raises(TaskError, match=f"task {TASK}, row 2, topic 'a'"):
        send(cluster, batches, **small)
    cluster.requests.clear()
    before = len(sent(cluster))
    counts = send(cluster, batches, onOversize="skip", **small)
    assert (counts.rows, counts.skipped) == (4, 1)
    assert len(sent(cluster)) - before == 4


@pytest.mark.parametrize(
    "sizes, left", [([1, 3_000, 2], 2), ([3_000, 1], 1), ([3_000, 4_000], 0)], ids=["between", "first", "all"]
)
def test_row_that_is_too_large_ends_no_transaction(
    cluster: ThreadedFakeCluster, sizes: Sequence[int], left: int
) -> None:
    """It is left out before the producer sees it; a transaction without rows is none."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "a", "kafka.max.request.size": "2000"}
    given |= {"exactlyOnce": "true", "sinkId": "s", "onOversize": "skip"}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset({"value"}), has_seconds=False))
    batch = pa.record_batch({"value": [b"x" * size for size in sizes]})
    counts, prepared = sender.send_all(iter([batch]), task=TASK, transactional_id="s.0.7.0")
    assert (counts.rows, counts.skipped) == (left, len(sizes) - left)
    assert (prepared is not None) is (left > 0)
    assert len(sent(cluster)) == left


def test_row_behind_one_that_was_left_out_keeps_its_number(cluster: ThreadedFakeCluster) -> None:
    batch = pa.record_batch({"value": [b"x" * 3_000, b"", b""], "partition": pa.array([0, 0, 5], pa.int32())})
    with pytest.raises(TaskError, match=f"task {TASK}, row 2, topic 'a': partition must be 0..0"):
        send(cluster, [batch], onOversize="skip", **{"kafka.max.request.size": "2000"})


def test_row_is_too_large_where_the_producer_says_so(cluster: ThreadedFakeCluster) -> None:
    """To the byte: with and without keys, and with headers of any kind."""
    headers = [None, [], [("h", b"1")], [("n" * 63, None), ("m" * 64, b"x" * 200)], [("ü", b"")] * 65]
    rows = [(size, key, each) for size in range(1_100, 2_000) for key in (None, b"k" * 64) for each in headers]
    batch = pa.record_batch(
        {
            "value": [b"x" * size for size, *_ in rows],
            "key": pa.array([key for _, key, _ in rows], pa.binary()),
            "headers": pa.array(
                [each and [{"key": name, "value": value} for name, value in each] for *_, each in rows], HEADERS
            ),
        }
    )

    async def refused(columns: Sequence[str]) -> tuple[list[int], list[int]]:
        async with Producer(cluster.bootstrap_servers, max_request_size=2_000) as producer:
            taken = await producer.send_arrow("a", batch.select(columns))
            fitting = SizeLimit(producer.config).fitting(batch.select(columns))
            with contextlib.suppress(UndeliveredError):
                await producer.flush()
        assert fitting is not None
        return sorted(taken.refused), sorted({*range(len(rows))} - {*fitting.to_pylist()})

    for columns in (["value"], ["value", "key"], ["value", "key", "headers"]):
        of_producer, ours = asyncio.run(refused(columns))
        assert of_producer
        assert of_producer == ours


@pytest.mark.parametrize("topic", ["client_id", "batch.size"])
def test_error_of_a_row_leaves_the_name_of_its_topic(cluster: ThreadedFakeCluster, topic: str) -> None:
    """Though it is that of an option."""
    batch = pa.record_batch({"value": [b""], "topic": [topic]})
    with pytest.raises(TaskError, match=f"^task {TASK}, row 0, topic '{topic}': ") as caught:
        send(cluster, [batch], **{"kafka.max.block.ms": "200"})
    assert "kafka.client" not in str(caught.value)
    assert "kafka.batch" not in str(caught.value)
    assert "kafka.max.block.ms" in str(caught.value)


def test_undelivered_rows_fail_the_task(cluster: ThreadedFakeCluster) -> None:
    """With the first of them, why, and how many."""
    cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE), times=None)
    said = rf"^task {TASK}, row 0, topic 'a': .*TOPIC_AUTHORIZATION_FAILED.* \(5 rows were not delivered\)$"
    with pytest.raises(TaskError, match=said):
        send(cluster, [values(5)])


FAR = 2**52


@pytest.mark.parametrize("is_transactional", [False, True])
def test_row_that_the_broker_refuses_has_its_number(
    cluster: ThreadedFakeCluster,
    is_transactional: bool,  # noqa: FBT001  # a parameter
) -> None:
    """In a transaction too, where the whole batch fails with it; also behind batches that are delivered."""
    times = [[1, 2], [3, 4, 5, FAR, 6], [7]]
    batches = [
        pa.record_batch({"value": [b""] * len(part), "timestamp": pa.array(part, pa.timestamp("ms", tz="UTC"))})
        for part in times
    ]
    options = {"topic": "a", "kafka.linger.ms": "200", "exactlyOnce": "true", "sinkId": "s"}
    given = SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, **options})
    sender = TaskSender(given, SinkColumns(frozenset({"value", "timestamp"}), has_seconds=False))
    with pytest.raises(TaskError, match=rf"^task {TASK}, row 5, topic 'a': .*{FAR}"):
        sender.send_all(iter(batches), task=TASK, transactional_id="s.0.7.0" if is_transactional else None)


WRONG_ROWS = {
    "illegal topic": ({"topic": ["a", "a b"]}, {}, "topic 'a b' has the character ' '"),
    "empty topic": ({"topic": ["a", ""]}, {}, "topic '' must not be empty"),
    "partition out of range": ({"partition": pa.array([0, 5], pa.int32())}, {}, "partition must be 0..0"),
    "negative partition": ({"partition": pa.array([None, -1], pa.int32())}, {}, "or null to have it chosen, got -1"),
    "time before 1970": ({"timestamp": pa.array([0, -5], pa.timestamp("ms", tz="UTC"))}, {}, "timestamp must be 0.."),
    "header without a name": (
        {"headers": pa.array([[], [{"key": None, "value": b"1"}]], HEADERS)},
        {},
        "headers: a name must be str, got null",
    ),
    "null header": ({"headers": pa.array([[], [None]], HEADERS)}, {}, "headers must hold"),
    "large value": ({"value": [b"", b"x" * 3_000]}, {"kafka.max.request.size": "2000"}, "raise kafka.max.request.size"),
    "large key": (
        {"key": [b"", b"x" * 3_000]},
        {"kafka.max.request.size": "2000"},
        "than the 2000 bytes that kafka.max.request.size allows",
    ),
}


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("case", WRONG_ROWS)
def test_wrong_row_names_task_row_topic_and_option(
    cluster: ThreadedFakeCluster,
    case: str,
    is_transactional: bool,  # noqa: FBT001  # a parameter
) -> None:
    """In the spelling of Spark's options."""
    columns, options, said = WRONG_ROWS[case]
    batch = pa.record_batch({"value": [b"", b""], **columns})
    topic = columns.get("topic", ["a", "a"])[1]
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options, "exactlyOnce": "true", "sinkId": "s"}
    given |= {"decisionTopic": "a"} if "topic" in columns else {"topic": "a"}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset(batch.schema.names), has_seconds=False))
    with pytest.raises(TaskError, match=rf"^task {TASK}, row 1, topic {re.escape(repr(topic))}: ") as caught:
        sender.send_all(iter([batch]), task=TASK, transactional_id="s.0.7.0" if is_transactional else None)
    assert said in str(caught.value)
    assert "_size" not in str(caught.value)


WRONG_STARTS = {
    "broker that is not there": ({"kafka.bootstrap.servers": "127.0.0.1:1"}, None, "127.0.0.1:1"),
    "right that is missing": ({}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no permission"),
    "time-out over the broker's": ({}, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "lower transactionTimeout"),
}


@pytest.mark.parametrize("case", WRONG_STARTS)
def test_task_whose_producer_does_not_start_is_named(cluster: ThreadedFakeCluster, case: str) -> None:
    options, code, said = WRONG_STARTS[case]
    if code is not None:
        cluster.faults.error(code, Where(api=ApiKey.INIT_PRODUCER_ID), times=None)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.max.block.ms": "300", "topic": "a"}
    given |= {**options, "exactlyOnce": "true", "sinkId": "s"}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset({"value"}), has_seconds=False))
    with pytest.raises(TaskError, match=f"^task {TASK}: ") as caught:
        sender.send_all(iter([values(1)]), task=TASK, transactional_id="s.0.7.0")
    assert said in str(caught.value)


def test_two_batches_at_most_are_on_the_way(cluster: ThreadedFakeCluster) -> None:
    """While the brokers take nothing, the third batch is not taken from Spark."""
    taken = []
    third = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            taken.append(number)
            if number == 3:
                third.set()
            yield values(100, size=1_000)

    cluster.faults.stall(Where(api=ApiKey.PRODUCE))
    options = {"kafka.buffer.memory": "32768", "kafka.batch.size": "16384", "kafka.max.block.ms": "1500"}
    given = SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "a", **options})
    sender = TaskSender(given, SinkColumns(frozenset({"value"}), has_seconds=False))
    with pytest.raises(TaskError, match=f"task {TASK}, row 32, topic 'a'"):
        sender.send_all(batches(), task=TASK)
    assert taken == [0, 1, 2]
    assert not third.is_set()


def test_no_thread_is_left(cluster: ThreadedFakeCluster) -> None:
    """Spark's workers run many tasks."""
    before = threading.active_count()
    send(cluster, [values(5)])
    assert threading.active_count() <= before


def test_rate_cuts_batches_and_holds_them(cluster: ThreadedFakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part takes a second at most, and waits for its turn."""
    clock = [0.0]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(round(seconds, 6))
        clock[0] += seconds

    monkeypatch.setattr(_task, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    counts = send(cluster, [values(50), values(5, start=50)], maxRecordsPerSecond="20")
    assert counts.rows == 55
    assert [int(record.value or b"") for record in sent(cluster)] == list(range(55))
    assert waits == [1.0, 1.0, 0.5]  # before the second 20, before 10, before 5


def test_no_rate_holds_nothing(cluster: ThreadedFakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_task.time, "sleep", pytest.fail)
    assert send(cluster, [values(50)]).rows == 50


def test_failing_task_aborts_what_it_has_written(cluster: ThreadedFakeCluster) -> None:
    """Else readers of committed records would wait for the time-out of its transaction."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "a", "kafka.linger.ms": "0"}
    # The pause of the rate lets the first rows reach the broker, so that there is something to abort.
    given |= {"exactlyOnce": "true", "sinkId": "load", "maxRecordsPerSecond": "100"}
    sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset({"value"}), has_seconds=False))
    batches = [values(50), values(1, size=2_000_000)]

    with pytest.raises(TaskError, match=r"task 7, row 50"):
        sender.send_all(iter(batches), task=TASK, transactional_id="load.0.7.0")

    assert ApiKey.END_TXN in {request.api for request in cluster.requests}


def report_of(*tasks: TaskCounts) -> dict[str, object]:
    return batch_report(tasks, query="stream q", batch=5, transactions=2, commit_s=0.0123)


def test_line_of_a_batch_has_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    """Retries too; none warns."""
    with caplog.at_level(logging.INFO, "aioproducer.spark"):
        publish(report_of(FULL, FULL), None)
    assert caplog.messages == [
        "stream q, batch 5: 2000 rows in 8 batches, 10000 bytes, 14 retries, 2 transactions, committed in 0.012 s"
    ]


def test_rows_that_were_skipped_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Also where no report is asked for."""
    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        publish(report_of(FULL, CUT), None)
    assert caplog.messages == ["stream q, batch 5: 3 rows too large were skipped"]


def test_file_gets_a_line_for_each_batch(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    for _ in range(2):
        publish(report_of(FULL, CUT), str(file))
    first, second = map(json.loads, file.read_text("utf-8").splitlines())
    assert first == second
    assert (first["rows"], first["skipped"], first["transactions"]) == (2_000, 3, 2)
    assert first["partitions"] == {"t": {"0": 2_000}}


def test_file_that_cannot_be_written_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rows are in Kafka."""
    publish(report_of(FULL), str(tmp_path / "nowhere" / "report"))
    assert f"report={tmp_path}/nowhere/report cannot be written" in caplog.text
