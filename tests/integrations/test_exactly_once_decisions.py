"""Decisions of the loop without brokers: what a failure means, the record at fault, the size of the next batch."""

import pytest
from aiokafka import ConsumerRecord

from aioproducer import (
    BrokerError,
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortableError,
    UndeliveredError,
)
from aioproducer.errors import TransactionTimeoutError
from aioproducer.integrations.aiokafka.batches import BatchSize, RecordBatch
from aioproducer.integrations.aiokafka.consumer import Membership
from aioproducer.integrations.aiokafka.failures import ATTEMPTS, Meaning, PoisonSearch, meaning_of

ILLEGAL_GENERATION = 22


def abortable(cause: KafkaError) -> KafkaError:
    error = TransactionAbortableError("must be aborted")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error, meaning",
    [
        (ValueError("of the user's code"), Meaning.RECORD),
        (abortable(RecordTooLargeError("x")), Meaning.RECORD),
        (abortable(BrokerError.of(87, "x")), Meaning.RECORD),
        (abortable(UndeliveredError("x", [RecordTooLargeError("x")])), Meaning.RECORD),
        (abortable(DeliveryTimeoutError("x")), Meaning.PASSING),
        (abortable(BrokerError.of(ILLEGAL_GENERATION, "x")), Meaning.PASSING),
        (TransactionTimeoutError("x"), Meaning.PASSING),
        (DeliveryTimeoutError("x"), Meaning.PASSING),
        (TransactionAbortableError("x", last_broker_error=BrokerError.of(120, "x")), Meaning.PASSING),
        (ProducerFencedError("x"), Meaning.FATAL),
        (abortable(ProducerFencedError("or the transaction timed out")), Meaning.PASSING),
        (BrokerError.of(53, "x"), Meaning.FATAL),
        (BrokerError.of(49, "x"), Meaning.FATAL),
        (abortable(BrokerError.of(49, "x")), Meaning.FATAL),
        (abortable(BrokerError.of(29, "x")), Meaning.FATAL),
        (IllegalStateError("x"), Meaning.FATAL),
    ],
    ids=lambda value: (
        value.name if isinstance(value, Meaning) else f"{type(value).__name__}-{type(value.__cause__).__name__}"
    ),
)
def test_meaning(error: Exception, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning


# The search for the record at fault


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


# The size of the next batch


def test_fast_code_gets_all_it_may() -> None:
    size = BatchSize(10_000, 60.0)

    assert not size.worked(10_000, 29.0, is_whole=True)
    assert size.limit == 10_000
    assert not size.worked(3, 0.0, is_whole=True)
    assert size.limit == 10_000


def test_slow_code_gets_batches_for_half_the_time_out() -> None:
    """It always gets at least one record."""
    size = BatchSize(10_000, 60.0)

    assert not size.worked(1_000, 40.0, is_whole=True)
    assert size.limit == 750
    assert size.worked(750, 60.0, is_whole=True)
    assert size.limit == 375
    assert size.worked(1, 70.0, is_whole=True)
    assert size.limit == 1


def test_code_that_is_fast_again_gets_more_again_step_by_step() -> None:
    size = BatchSize(50, 60.0)
    size.worked(100, 300.0, is_whole=True)

    found = []
    for _ in range(4):
        found.append(size.limit)
        size.worked(size.limit, 0.5, is_whole=True)
    assert found == [10, 20, 40, 50]


@pytest.mark.parametrize("took_s, limit", [(0.001, 250), (70.0, 107), (60.0, 125)])
def test_failed_code_counts_only_when_it_was_late(took_s: float, limit: int) -> None:
    """It may have failed at the first record, or because its transaction had timed out."""
    size = BatchSize(10_000, 60.0)
    size.worked(250, 30.0, is_whole=True)
    assert size.limit == 250

    size.worked(250, took_s, is_whole=False)
    assert size.limit == limit
