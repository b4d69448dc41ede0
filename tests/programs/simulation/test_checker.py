"""The checker sees every way in which a log can differ from the reported outcomes."""

import dataclasses

from aioproducer import OffsetRange, TopicPartition
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from tests.programs.simulation.checker import KeptLog, Promise, check_history
from tests.programs.simulation.history import End, RecordId, Story

EXACTLY_ONCE = Promise(acks=-1, is_idempotent=True)
AT_LEAST_ONCE = Promise(acks=1, is_idempotent=False)


def told(number: int, *, end: End = End.ACKNOWLEDGED, offset: int | None = None) -> Story:
    """Return the story of record `number`, by default acknowledged at the offset of the same number."""
    record = RecordId(0, 0, number)
    story = Story(record, number, "t", b"%d.%d.%d|" % record, None, "send", 0.0, 0, end=end)
    story.offset, story.timestamp = number if offset is None else offset, 1000 + number
    return story


def written(number: int, *, at: int | None = None, value: bytes | None = None) -> LoggedRecord:
    """Return record `number` as it stands in a log, by default at the offset of the same number."""
    return LoggedRecord(
        offset=number if at is None else at,
        key=None,
        value=b"0.0.%d|" % number if value is None else value,
        headers=(),
        timestamp=1000 + number,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        sequence=0,
    )


def broken(stories: list[Story], *records: LoggedRecord, promise: Promise = EXACTLY_ONCE, **log: object) -> list[str]:
    """Return the checks that find something in one partition's log."""
    kept = KeptLog(topic="t", partition=0, records=records, **log)  # type: ignore[arg-type]  # its fields
    return [violation.invariant for violation in check_history(stories, [kept], promise)]


def test_nothing_is_found_when_all_is_well() -> None:
    assert broken([told(0), told(1)], written(0), written(1)) == []


def test_missing_record_is_found() -> None:
    assert broken([told(0), told(1)], written(0)) == ["LOST"]


def test_doubled_record_is_found() -> None:
    assert broken([told(0)], written(0), written(0, at=1)) == ["DUPLICATE"]


def test_doubled_record_is_allowed_without_idempotence() -> None:
    assert broken([told(0)], written(0), written(0, at=1), promise=AT_LEAST_ONCE) == []


def test_duplicate_is_excused_when_the_producer_was_forgotten() -> None:
    assert broken([told(0), told(1)], written(0), written(1), written(0, at=2), forgot_at=(1,)) == []


def test_duplicate_is_not_excused_by_earlier_forgetting() -> None:
    assert broken([told(0), told(1)], written(0), written(1), written(1, at=2), forgot_at=(1,)) == ["DUPLICATE"]


def test_record_time_as_append_time_is_excused_only_if_unclear() -> None:
    """A batch was appended in the millisecond of its latest record, and sent again."""
    appended = [written(number)._replace(timestamp=1001) for number in (0, 1)]
    promise = dataclasses.replace(EXACTLY_ONCE, keeps_append_time=True)

    assert broken([told(0), told(1)], *appended, promise=promise) == []
    assert broken([told(0)], appended[0], promise=promise) == ["RECORD_METADATA"]


def test_swapped_records_are_found() -> None:
    assert broken([told(0, offset=1), told(1, offset=0)], written(1, at=0), written(0, at=1)) == ["ORDER"]


def test_order_is_not_asked_for_where_it_is_not_promised() -> None:
    promise = Promise(acks=0, is_idempotent=False, keeps_order=False)

    assert broken([told(0, offset=1), told(1, offset=0)], written(1, at=0), written(0, at=1), promise=promise) == []


def test_altered_record_is_found() -> None:
    assert broken([told(0)], written(0, value=b"0.0.0|x")) == ["FOREIGN"]


def test_phantom_record_is_found() -> None:
    assert broken([], written(7)) == ["FOREIGN"]


def test_foreign_bytes_are_found() -> None:
    assert broken([], written(0, value=b"hello")) == ["FOREIGN"]


def test_record_in_another_partition_is_found() -> None:
    story = told(0, end=End.UNKNOWN)
    story.partition = 1

    assert broken([story], written(0)) == ["FOREIGN"]


def test_wrong_offset_is_found() -> None:
    assert broken([told(0, offset=5)], written(0)) == ["RECORD_METADATA"]


def test_wrong_timestamp_is_found() -> None:
    story = told(0)
    story.timestamp = 5

    assert broken([story], written(0)) == ["RECORD_METADATA"]


def test_not_written_record_in_the_log_is_found() -> None:
    assert broken([told(0, end=End.NOT_WRITTEN)], written(0)) == ["NOT_WRITTEN"]


def test_not_written_record_that_was_cut_off_is_found() -> None:
    """The record was written, and lost with a leader: a client that sends it again cannot know that."""
    story = told(0, end=End.NOT_WRITTEN)

    assert broken([story], cut=(written(0),), promise=AT_LEAST_ONCE) == ["NOT_WRITTEN"]


def test_unknown_record_may_be_there_or_not() -> None:
    assert broken([told(0, end=End.UNKNOWN), told(1, end=End.UNKNOWN)], written(0)) == []


def test_unknown_record_is_not_there_twice() -> None:
    assert broken([told(0, end=End.UNKNOWN)], written(0), written(0, at=1)) == ["DUPLICATE"]


def test_record_without_an_end_is_found() -> None:
    assert broken([told(0, end=End.OPEN)]) == ["ENDS_ONCE"]


def test_acknowledged_record_may_die_with_its_leader_at_acks_1() -> None:
    assert broken([told(0)], cut=(written(0),), promise=AT_LEAST_ONCE) == []


def test_acks_all_record_does_not_die_with_its_leader() -> None:
    assert broken([told(0)], cut=(written(0),)) == ["LOST"]


def test_lost_header_is_found() -> None:
    story = told(0)
    story.headers = (("trace", b"1"),)

    assert broken([story], written(0)) == ["FOREIGN"]


def test_key_in_another_partition_than_its_own_is_found() -> None:
    """Kafka's hash gives the key's partition, which its caller does not know."""
    found = []
    for key in (b"a", b"b", b"c", b"d"):
        story = told(0, end=End.UNKNOWN)
        story.key, story.partition, story.is_by_key = key, None, True
        record = written(0)._replace(key=key)
        found.append(broken([story], record, promise=Promise(acks=-1, is_idempotent=True, partitions=2)))

    assert [] in found
    assert ["FOREIGN"] in found


def test_range_that_leaves_a_record_out_is_found() -> None:
    story = told(1, offset=-1)
    place = TopicPartition("t", 0)

    story.ranges = {place: OffsetRange(0, 1, 2)}
    within = broken([story], written(1))
    story.ranges = {place: OffsetRange(0, 0, 2)}

    assert (within, broken([story], written(1))) == ([], ["RECORD_METADATA"])
