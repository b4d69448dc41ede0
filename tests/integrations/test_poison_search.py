"""The search for the record at fault, without brokers."""

from aiokafka import ConsumerRecord

from aioproducer import TopicPartition
from aioproducer.integrations.aiokafka.batches import RecordBatch
from aioproducer.integrations.aiokafka.consumer import Membership
from aioproducer.integrations.aiokafka.failures import ATTEMPTS, PoisonSearch

ERROR = ValueError("bad")
NO_MEMBERSHIP = object.__new__(Membership)


def record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, 0, None, b"v", None, 0, 1, ())


def batch(*places: tuple[int, int]) -> RecordBatch:
    return RecordBatch([record(*place) for place in places], NO_MEMBERSHIP)


def test_batch_commits_behind_the_last_record_of_each_partition() -> None:
    offsets = batch((0, 5), (1, 9), (0, 6)).next_offsets()

    assert offsets == {TopicPartition("t", 0): (7, ""), TopicPartition("t", 1): (10, "")}


def test_records_of_a_failed_batch_come_one_by_one() -> None:
    search = PoisonSearch()
    assert search.limit(100) == 100

    search.failed(batch((0, 5), (0, 6), (1, 0)), ERROR)
    limits = []
    for place in [(0, 5), (1, 0), (0, 6)]:
        limits.append(search.limit(100))
        search.committed(batch(place).next_offsets())

    assert limits == [1, 1, 1]
    assert search.limit(100) == 100


def test_record_that_fails_alone_is_poison_after_some_attempts() -> None:
    """A single failure may be chance."""
    search = PoisonSearch()
    search.failed(batch((0, 5), (0, 6)), ERROR)

    found = []
    for _ in range(ATTEMPTS):
        found.append(search.error_of(record(0, 6)))
        search.failed(batch((0, 6)), ERROR)

    assert found == [None] * ATTEMPTS
    assert search.error_of(record(0, 6)) is ERROR
    assert search.error_of(record(0, 5)) is None


def test_poison_that_was_passed_is_forgotten() -> None:
    search = PoisonSearch()
    for _ in range(ATTEMPTS):
        search.failed(batch((0, 6)), ERROR)

    search.committed(batch((0, 6)).next_offsets())

    assert (search.error_of(record(0, 6)), search.limit(100)) == (None, 100)


def test_partition_of_another_member_is_forgotten() -> None:
    """After a rebalance this worker does not read its records."""
    search = PoisonSearch()
    for _ in range(ATTEMPTS):
        search.failed(batch((0, 6)), ERROR)
    search.failed(batch((1, 0), (1, 1)), ERROR)

    search.keep((TopicPartition("t", 1),))

    assert (search.error_of(record(0, 6)), search.limit(100)) == (None, 1)
