"""The checker sees every way in which a log can differ from the reported outcomes."""

import dataclasses

import pytest

from aioproducer import OffsetRange, TopicPartition
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from tests.programs.simulation.history import End, Operation, RecordId
from tests.programs.simulation.log_checker import Guarantees, KeptLog, check_history

EXACTLY_ONCE = Guarantees(acks=-1, is_idempotent=True)
AT_LEAST_ONCE = Guarantees(acks=1, is_idempotent=False)


def told(number: int, *, end: End = End.ACKNOWLEDGED, offset: int | None = None) -> Operation:
    """Return the operation of record `number`, by default acknowledged at the offset of the same number."""
    record = RecordId(0, 0, number)
    operation = Operation(record, number, "t", b"%d.%d.%d|" % record, None, "send", 0.0, 0, end=end)
    operation.offset, operation.timestamp = number if offset is None else offset, 1000 + number
    return operation


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


def broken(
    operations: list[Operation], *records: LoggedRecord, guarantees: Guarantees = EXACTLY_ONCE, **log: object
) -> list[str]:
    """Return the checks that find something in one partition's log."""
    kept = KeptLog(topic="t", partition=0, records=records, **log)  # type: ignore[arg-type]  # its fields
    return [violation.invariant for violation in check_history(operations, [kept], guarantees)]


@pytest.mark.parametrize(
    "operations, records, expected",
    [
        pytest.param([told(0), told(1)], [written(0), written(1)], [], id="all is well"),
        pytest.param([told(0), told(1)], [written(0)], ["LOST"], id="missing"),
        pytest.param([told(0)], [written(0), written(0, at=1)], ["DUPLICATE"], id="doubled"),
        pytest.param(
            [told(0, offset=1), told(1, offset=0)], [written(1, at=0), written(0, at=1)], ["ORDER"], id="swapped"
        ),
        pytest.param([told(0)], [written(0, value=b"0.0.0|x")], ["FOREIGN"], id="altered"),
        pytest.param([], [written(7)], ["FOREIGN"], id="phantom"),
        pytest.param([], [written(0, value=b"hello")], ["FOREIGN"], id="foreign bytes"),
        pytest.param([told(0, offset=5)], [written(0)], ["RECORD_METADATA"], id="wrong offset"),
        pytest.param([told(0, end=End.NOT_WRITTEN)], [written(0)], ["NOT_WRITTEN"], id="not written, and there"),
        pytest.param(
            [told(0, end=End.UNKNOWN), told(1, end=End.UNKNOWN)], [written(0)], [], id="unknown, there or not"
        ),
        pytest.param(
            [told(0, end=End.UNKNOWN)], [written(0), written(0, at=1)], ["DUPLICATE"], id="unknown, and there twice"
        ),
        pytest.param([told(0, end=End.OPEN)], [], ["ENDS_ONCE"], id="without an end"),
    ],
)
def test_difference_is_found(operations: list[Operation], records: list[LoggedRecord], expected: list[str]) -> None:
    assert broken(operations, *records) == expected


def test_what_is_not_guaranteed_is_not_required() -> None:
    """Duplicates without idempotence, and order."""
    unordered = Guarantees(acks=0, is_idempotent=False, keeps_order=False)

    assert broken([told(0)], written(0), written(0, at=1), guarantees=AT_LEAST_ONCE) == []
    assert (
        broken([told(0, offset=1), told(1, offset=0)], written(1, at=0), written(0, at=1), guarantees=unordered) == []
    )


def test_duplicate_is_allowed_if_a_producer_was_forgotten() -> None:
    assert broken([told(0), told(1)], written(0), written(1), written(0, at=2), forgot_at=(1,)) == []
    assert broken([told(0), told(1)], written(0), written(1), written(1, at=2), forgot_at=(1,)) == ["DUPLICATE"]


def test_record_may_die_with_its_leader_at_acks_1_alone() -> None:
    """One that is NOT_WRITTEN was written, and cut off: a client that sends it again cannot know that."""
    assert broken([told(0)], cut=(written(0),), guarantees=AT_LEAST_ONCE) == []
    assert broken([told(0)], cut=(written(0),)) == ["LOST"]
    assert broken([told(0, end=End.NOT_WRITTEN)], cut=(written(0),), guarantees=AT_LEAST_ONCE) == ["NOT_WRITTEN"]


def test_record_time_as_append_time_is_allowed_only_if_unclear() -> None:
    """A batch was appended in the millisecond of its latest record, and sent again."""
    appended = [written(number)._replace(timestamp=1001) for number in (0, 1)]
    guarantees = dataclasses.replace(EXACTLY_ONCE, keeps_append_time=True)

    assert broken([told(0), told(1)], *appended, guarantees=guarantees) == []
    assert broken([told(0)], appended[0], guarantees=guarantees) == ["RECORD_METADATA"]


def test_record_in_another_partition_is_found() -> None:
    operation = told(0, end=End.UNKNOWN)
    operation.partition = 1

    assert broken([operation], written(0)) == ["FOREIGN"]


def test_wrong_timestamp_is_found() -> None:
    operation = told(0)
    operation.timestamp = 5

    assert broken([operation], written(0)) == ["RECORD_METADATA"]


def test_lost_header_is_found() -> None:
    operation = told(0)
    operation.headers = (("trace", b"1"),)

    assert broken([operation], written(0)) == ["FOREIGN"]


def test_key_in_another_partition_than_its_own_is_found() -> None:
    """Kafka's hash gives the key's partition, which its caller does not know."""
    found = []
    for key in (b"a", b"b", b"c", b"d"):
        operation = told(0, end=End.UNKNOWN)
        operation.key, operation.partition, operation.is_by_key = key, None, True
        record = written(0)._replace(key=key)
        found.append(broken([operation], record, guarantees=Guarantees(acks=-1, is_idempotent=True, partitions=2)))

    assert [] in found
    assert ["FOREIGN"] in found


def test_range_that_leaves_a_record_out_is_found() -> None:
    operation = told(1, offset=-1)
    place = TopicPartition("t", 0)

    operation.ranges = {place: OffsetRange(0, 1, 2)}
    within = broken([operation], written(1))
    operation.ranges = {place: OffsetRange(0, 0, 2)}

    assert (within, broken([operation], written(1))) == ([], ["RECORD_METADATA"])
