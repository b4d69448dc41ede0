"""A stream's reader as Spark's driver asks it, on the embedded cluster and without a session."""

import logging
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import InputPartition

from aioproducer import BlockingProducer
from aioproducer.errors import KafkaError
from aioproducer.spark._reader import KafkaStreamReader
from aioproducer.spark._source_options import SourceOptions
from tests.spark.functions.conftest import Topics


def reader(topics: Topics, *, now: Callable[[], float] = float, **options: str) -> KafkaStreamReader:
    """Return the reader of the test's own topic."""
    given = {
        "kafka.bootstrap.servers": topics.servers,
        "subscribe": topics.own,
        "fetchOffset.retryIntervalMs": "1",
        **options,
    }
    return KafkaStreamReader(SourceOptions.parse(given, is_stream=True), now=now)


def values(asked: KafkaStreamReader, partition: InputPartition) -> list[bytes]:
    """Return what a task reads."""
    return [value for batch in asked.read(partition) for value in batch.column("value").to_pylist()]


@pytest.fixture
def filled(embedded_topics: Topics) -> Topics:
    """A topic of one partition with ten records."""
    embedded_topics.create_own(1)
    with BlockingProducer(embedded_topics.servers) as producer:
        for row in range(10):
            producer.enqueue(embedded_topics.own, str(row).encode())
        producer.flush()
    return embedded_topics


def test_limit_of_spark_4_0_counts_from_the_start(filled: Topics) -> None:
    """Spark asks without arguments; the reader knows the start from what was asked before."""
    asked = reader(filled, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert asked.initialOffset() == {filled.own: {"0": 0}}
    ends = []
    for _ in range(3):
        start, end = ends[-1] if ends else {filled.own: {"0": 0}}, asked.latestOffset()
        asked.partitions(start, end)
        ends.append(end)
    assert [end[filled.own]["0"] for end in ends] == [4, 8, 10]


def test_stream_that_begins_at_the_latest_offset_never_goes_back(filled: Topics) -> None:
    """Under a limit too."""
    asked = reader(filled, maxOffsetsPerTrigger="4")
    assert asked.initialOffset() == asked.latestOffset() == {filled.own: {"0": 10}}


def test_unknown_start_of_spark_4_0_is_not_limited(filled: Topics) -> None:
    """After a restart a limited end might lie before the start."""
    assert reader(filled, maxOffsetsPerTrigger="4").latestOffset() == {filled.own: {"0": 10}}


def test_empty_range_does_not_limit_what_is_available_now(filled: Topics) -> None:
    """Spark 4.0 asks for one when a query starts again, and then for the end of all that it is to read."""
    asked = reader(filled, maxOffsetsPerTrigger="4")
    place = {filled.own: {"0": 2}}
    assert asked.partitions(place, place) == []
    assert asked.latestOffset() == {filled.own: {"0": 10}}


def test_topic_that_was_made_anew(filled: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """Ends before what was read: an error, or the stream goes on at its end."""
    start = {filled.own: {"0": 50}}
    with pytest.raises(KafkaError, match=r"ends at offset 10, and was read to 50.*failOnDataLoss=false"):
        reader(filled).latestOffset(start)
    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        assert reader(filled, failOnDataLoss="false").latestOffset(start) == {filled.own: {"0": 10}}
    assert "was read to 50" in caplog.text


def delete_before(topics: Topics, offset: int) -> None:
    """Delete the first records of the test's topic."""
    admin = AdminClient({"bootstrap.servers": topics.servers})
    for future in admin.delete_records([TopicPartition(topics.own, 0, offset)]).values():
        future.result(20)


def test_deleted_records_are_found_before_the_tasks(filled: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """An error, or a warning and the records that are left; no partition if none is."""
    delete_before(filled, 4)
    start, end = {filled.own: {"0": 2}}, {filled.own: {"0": 7}}
    with pytest.raises(KafkaError, match=rf"offsets 2 to 4 of {filled.own}-0 are deleted.*failOnDataLoss=false"):
        reader(filled).partitions(start, end)
    asked = reader(filled, failOnDataLoss="false")
    (partition,) = asked.partitions(start, end)
    assert values(asked, partition) == [b"4", b"5", b"6"]
    assert "offsets 2 to 4" in caplog.text
    assert asked.partitions(start, {filled.own: {"0": 3}}) == []
    assert "offsets 2 to 3" in caplog.text


def test_deleted_records_are_found_by_a_task(filled: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """They were there when the batch was planned."""
    place = {filled.own: {"0": 2}}, {filled.own: {"0": 7}}
    (strict,), (lenient,) = (reader(filled).partitions(*place) for _ in range(2))
    delete_before(filled, 4)
    with pytest.raises(KafkaError, match=rf"offset 2 of {filled.own}-0 is gone; it begins at 4.*failOnDataLoss=false"):
        values(reader(filled), strict)
    assert values(reader(filled, failOnDataLoss="false"), lenient) == [b"4", b"5", b"6"]
    assert "is gone; it begins at 4" in caplog.text


def test_available_now_ends_where_the_topic_ended(filled: Topics) -> None:
    """What comes later is for the next query."""
    asked = reader(filled, startingOffsets="earliest")
    asked.initialOffset()
    asked.prepareForTriggerAvailableNow()
    with BlockingProducer(filled.servers) as producer:
        producer.send(filled.own, b"late")
    assert asked.latestOffset() == {filled.own: {"0": 10}}
    assert asked.reportLatestOffset() == {filled.own: {"0": 11}}


def test_group_that_cannot_be_committed_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Spark keeps the offsets that count."""
    asked = reader(Topics("127.0.0.1:1", "t"), offsetGroup="g")
    asked.commit({"t": {"0": 1}})
    assert "offsetGroup=g: offsets were not committed" in caplog.text


def test_ranges_are_read(filled: Topics) -> None:
    """To their end and not further."""
    asked = reader(filled)
    (partition,) = asked.partitions({filled.own: {"0": 3}}, {filled.own: {"0": 6}})
    assert values(asked, partition) == [b"3", b"4", b"5"]


def test_batch_waits_for_enough_offsets_or_long_enough(filled: Topics) -> None:
    """The first one does not wait: how long the query was away is not known."""
    seconds = [0.0]
    asked = reader(filled, now=lambda: seconds[0], minOffsetsPerTrigger="20", maxTriggerDelay="60s")
    start, first = {filled.own: {"0": 0}}, {filled.own: {"0": 6}}
    assert asked.latestOffset(start) == {filled.own: {"0": 10}}
    assert asked.latestOffset(first) == first
    seconds[0] = 60.0
    assert asked.latestOffset(first) == {filled.own: {"0": 10}}
    assert asked.latestOffset(first) == first
    with BlockingProducer(filled.servers) as producer:
        for _ in range(16):
            producer.enqueue(filled.own, b"more")
        producer.flush()
    assert asked.latestOffset(first) == {filled.own: {"0": 26}}


def test_what_is_available_now_does_not_wait(filled: Topics) -> None:
    """Or the query would end before it has read all."""
    asked = reader(filled, minOffsetsPerTrigger="8", maxOffsetsPerTrigger="8")
    asked.prepareForTriggerAvailableNow()
    assert asked.latestOffset({filled.own: {"0": 0}}) == {filled.own: {"0": 8}}
    assert asked.latestOffset({filled.own: {"0": 8}}) == {filled.own: {"0": 10}}


def test_partition_that_is_gone(filled: Topics) -> None:
    """Is an error, or left out; and so is the rest of its batch."""
    start = {"gone": {"0": 3}, filled.own: {"0": 4}}
    with pytest.raises(KafkaError, match=r"partition gone-0 is gone, and was read to offset 3.*failOnDataLoss=false"):
        reader(filled).latestOffset(start)
    asked = reader(filled, failOnDataLoss="false")
    assert asked.latestOffset(start) == {filled.own: {"0": 10}}
    (partition,) = asked.partitions(start, {"gone": {"0": 5}, filled.own: {"0": 6}})
    assert values(asked, partition) == [b"4", b"5"]


def test_new_partition_that_has_lost_records(filled: Topics) -> None:
    """Its first records came and went between two batches."""
    delete_before(filled, 2)
    with pytest.raises(KafkaError, match=rf"{filled.own}-0, a new partition, begins at offset 2"):
        reader(filled).latestOffset({"gone": {}})


def test_batch_that_ends_beyond_the_log(filled: Topics) -> None:
    """Found before the tasks, which would wait for it: the topic was made again."""
    place = {filled.own: {"0": 2}}, {filled.own: {"0": 17}}
    with pytest.raises(KafkaError, match=rf"offsets 10 to 17 of {filled.own}-0 are not there; it ends at 10"):
        reader(filled).partitions(*place)
    asked = reader(filled, failOnDataLoss="false")
    (partition,) = asked.partitions(*place)
    assert values(asked, partition) == [str(row).encode() for row in range(2, 10)]


def test_record_without_headers_has_null(filled: Topics) -> None:
    """As Spark's own source has it."""
    asked = reader(filled, includeHeaders="true")
    with BlockingProducer(filled.servers) as producer:
        producer.send(filled.own, b"10", headers=[("a", b"b"), ("c", None)])
    (partition,) = asked.partitions({filled.own: {"0": 9}}, {filled.own: {"0": 11}})
    (batch,) = asked.read(partition)
    assert batch.column("headers").to_pylist() == [None, [{"key": "a", "value": b"b"}, {"key": "c", "value": None}]]


def test_partition_that_is_not_there_is_told_once(filled: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """A stream asks several times a second."""
    given = {"kafka.bootstrap.servers": filled.servers, "assign": f'{{"{filled.own}": [0, 7]}}'}
    asked = KafkaStreamReader(SourceOptions.parse(given, is_stream=True))
    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        for _ in range(3):
            assert asked.latestOffset() == {filled.own: {"0": 10}}
    assert caplog.messages == [f"assign: topic '{filled.own}' has no partition 7, which is left out"]
