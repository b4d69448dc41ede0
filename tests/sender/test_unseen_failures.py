"""Failures not looked at reach exactly the flush that must raise them, and their memory is bounded."""

import pytest

from aioproducer._native.delivery import BatchResult
from aioproducer._sender.unseen_failures import KEPT, UnseenFailures
from aioproducer.errors import KafkaError
from aioproducer.records import TopicPartition


def failed_batch(records: int = 1, text: str = "no") -> BatchResult:
    result = BatchResult(None, TopicPartition("t", 0))  # type: ignore[arg-type]  # it is not awaited
    result.fail(KafkaError(text), records)
    return result


def trimmed(batches: int, records: int = 1) -> tuple[UnseenFailures, list[BatchResult]]:
    """Failures of which the oldest are only counted, and their batches, whose errors are their numbers."""
    unseen = UnseenFailures()
    failed = [failed_batch(records, str(number)) for number in range(batches)]
    for batch in failed:
        unseen.record(batch, 0)
    unseen.trim()
    return unseen, failed


def test_failure_is_raised_by_the_next_flush_and_by_no_other() -> None:
    unseen = UnseenFailures()
    unseen.record(failed_batch(3), 0)

    flush = unseen.begin_flush(0)
    error = flush.take_error()
    unseen.end_flush(flush)

    assert error is not None
    assert (error.count, [str(each) for each in error.exceptions]) == (3, ["no"])
    assert unseen.begin_flush(1).take_error() is None


def test_next_flush_is_known_to_raise_or_not() -> None:
    """So that the end of a transaction need not begin one to forget what is kept."""
    unseen = UnseenFailures()
    assert not unseen.keeps_any

    unseen.record(failed_batch(), 0)
    assert unseen.keeps_any

    unseen.begin_flush(0)
    assert not unseen.keeps_any


def test_records_that_the_next_flush_raises_are_counted() -> None:
    """Those of trimmed batches too, and without the ones that a caller has looked at."""
    unseen, batches = trimmed(KEPT + 1, 2)

    assert unseen.records == 2 * (KEPT + 1)

    batches[0].delivery(0, -1).exception()
    batches[-1].delivery(0, -1).exception()
    assert unseen.records == 2 * KEPT


def test_failure_is_raised_by_every_flush_that_waited_for_it() -> None:
    """And is not kept for a later one."""
    unseen = UnseenFailures()
    first, second = unseen.begin_flush(0), unseen.begin_flush(1)

    unseen.record(failed_batch(), 0)

    assert first.take_error() is not None
    assert second.take_error() is not None
    assert unseen.begin_flush(2).take_error() is None


def test_flush_does_not_raise_what_was_accepted_after_it() -> None:
    """That is the next one's."""
    unseen = UnseenFailures()
    flush = unseen.begin_flush(0)
    unseen.record(failed_batch(), 1)

    assert flush.take_error() is None
    unseen.end_flush(flush)

    assert unseen.begin_flush(1).take_error() is not None


def test_cancelled_flush_leaves_failures_to_the_next() -> None:
    unseen = UnseenFailures()
    cancelled = unseen.begin_flush(0)
    unseen.record(failed_batch(text="its own"), 0)
    unseen.record(failed_batch(text="a later one"), 1)

    unseen.end_flush(cancelled)

    error = unseen.begin_flush(1).take_error()
    assert error is not None
    assert {str(each) for each in error.exceptions} == {"its own", "a later one"}


@pytest.mark.parametrize("order", ["cancelled first", "cancelled last"])
@pytest.mark.parametrize("batches", [1, KEPT + 50])
def test_failure_raised_by_another_flush_is_not_kept(order: str, batches: int) -> None:
    """It would be raised twice, one after the other."""
    unseen = UnseenFailures()
    cancelled, other = unseen.begin_flush(0), unseen.begin_flush(1)
    for _ in range(batches):
        unseen.record(failed_batch(), 0)
    if order == "cancelled first":
        unseen.trim()
        unseen.end_flush(cancelled)
    error = other.take_error()
    unseen.end_flush(other)
    if order == "cancelled last":
        unseen.end_flush(cancelled)

    assert error is not None
    assert error.count == batches
    assert unseen.begin_flush(2).take_error() is None


@pytest.mark.parametrize("batches", [1, KEPT + 50])
def test_failure_that_all_flushes_left_behind_is_raised_once(batches: int) -> None:
    """The next flush raises the whole count."""
    unseen = UnseenFailures()
    flushes = [unseen.begin_flush(0), unseen.begin_flush(1)]
    for _ in range(batches):
        unseen.record(failed_batch(), 0)
    unseen.trim()
    for flush in flushes:
        unseen.end_flush(flush)

    error = unseen.begin_flush(2).take_error()
    assert error is not None
    assert error.count == batches
    assert unseen.begin_flush(3).take_error() is None


def test_failure_outlives_any_number_of_cancelled_flushes() -> None:
    """Each leaves it to the next, and none has raised it."""
    unseen = UnseenFailures()
    unseen.record(failed_batch(), 0)
    for generation in range(3):
        unseen.end_flush(unseen.begin_flush(generation))

    assert unseen.begin_flush(3).take_error() is not None


def test_failure_that_was_looked_at_is_not_raised() -> None:
    unseen = UnseenFailures()
    batch = failed_batch(2)
    unseen.record(batch, 0)

    batch.delivery(0, 0).exception()

    error = unseen.begin_flush(0).take_error()
    assert error is not None
    assert error.count == 1


def test_looking_twice_at_one_record_does_not_hide_another() -> None:
    """A callback and an awaiter of the same record are one look."""
    batch = BatchResult(None, TopicPartition("t", 0))  # type: ignore[arg-type]  # it is not awaited
    batch.fail(KafkaError("no"), 2)

    batch.note_retrieval_of(print, 0)
    batch.delivery(0, 0).exception()
    batch.delivery(0, 0).exception()

    assert batch.unseen() == 1


def test_kept_failures_are_bounded_and_all_counted() -> None:
    """A thousand batches without a flush."""
    unseen = UnseenFailures()
    for number in range(1000):
        unseen.record(failed_batch(2, str(number)), 0)
        unseen.trim()

    error = unseen.begin_flush(0).take_error()

    assert error is not None
    assert error.count == 2000
    assert len(error.exceptions) == KEPT


def test_trimmed_failures_are_raised_after_kept_are_seen() -> None:
    """A count without an example would be no error at all."""
    unseen, batches = trimmed(KEPT + 1)
    for batch in batches[1:]:
        batch.delivery(0, 0).exception()

    error = unseen.begin_flush(0).take_error()

    assert error is not None
    assert (error.count, [str(each) for each in error.exceptions]) == (1, ["0"])


def test_trimming_forgets_what_was_looked_at_first() -> None:
    """However many failed in one turn, those who awaited have been told by then."""
    unseen = UnseenFailures()
    batches = [failed_batch() for _ in range(5 * KEPT)]
    for batch in batches:
        unseen.record(batch, 0)
        batch.delivery(0, 0).exception()
    unseen.trim()

    assert unseen.begin_flush(0).take_error() is None


@pytest.mark.parametrize("batches", [KEPT + 1, 3 * KEPT])
def test_failure_looked_at_after_it_was_trimmed_is_not_raised(batches: int) -> None:
    unseen, failed = trimmed(batches, 2)

    for batch in failed:
        batch.delivery(0, 0).exception()
        batch.delivery(0, 0).exception()  # a second look at one record takes nothing off
    flush = unseen.begin_flush(0)
    error = flush.take_error()

    assert error is not None
    assert error.count == batches
    for batch in failed:
        batch.delivery(1, 0).exception()  # after it was raised: no later flush is affected
    unseen.end_flush(flush)
    assert not unseen.keeps_any


def test_late_look_reaches_the_count_through_cancelled_flushes() -> None:
    """Counts are handed from flush to flush; a look finds the present holder of the count."""
    unseen = UnseenFailures()
    failed = [failed_batch() for _ in range(4 * KEPT)]
    flushes = [unseen.begin_flush(0), unseen.begin_flush(1)]
    for number, batch in enumerate(failed):
        unseen.record(batch, 2 if number % 2 else 0)
    unseen.trim()
    for flush in flushes:
        unseen.end_flush(flush)

    for batch in failed[:-1]:
        batch.delivery(0, 0).exception()
    error = unseen.begin_flush(2).take_error()

    assert error is not None
    assert error.count == 1


def test_all_trimmed_failures_looked_at_leave_nothing_to_raise() -> None:
    """So the end of a transaction has nothing to forget."""
    unseen, failed = trimmed(2 * KEPT)

    for batch in failed:
        batch.delivery(0, 0).exception()

    assert unseen.begin_flush(0).take_error() is None
