"""The checker of transactions finds what it is there to find, and nothing else."""

import pytest

from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from tests.programs.simulation.transaction_stories import (
    Outcome,
    Place,
    TransactionEnd,
    TransactionStory,
    check_transactions,
)

COMMITTED, ABORTED, UNKNOWN = TransactionEnd.COMMITTED, TransactionEnd.ABORTED, TransactionEnd.UNKNOWN


def logged(*numbers: int, transaction: int = 1) -> list[LoggedRecord]:
    return [
        LoggedRecord(at, None, Place(transaction, number).payload(b"x"), (), 0, 0, 7, 0, at)
        for at, number in enumerate(numbers)
    ]


def found(
    end: TransactionEnd,
    seen: list[LoggedRecord],
    *,
    offset: int = 1,
    began_at: float = 0.0,
    fenced_at: float = 9.0,
    forgotten_at: float = 99.0,
) -> list[str]:
    """Return the checker's verdict on a transaction of records 0 and 1 and an offset."""
    story = TransactionStory(1, 0, began_at, records={0: 0, 1: 0}, has_offset=True, end=end)
    outcome = Outcome(
        committed={0: seen},
        batches={},
        offsets={"group-1": offset},
        fenced_at={0: fenced_at},
        forgotten_at={0: forgotten_at},
    )
    return [violation.invariant for violation in check_transactions([story], outcome)]


@pytest.mark.parametrize("end", [COMMITTED, UNKNOWN])
def test_whole_transaction_is_right(end: TransactionEnd) -> None:
    assert found(end, logged(0, 1)) == []


@pytest.mark.parametrize("end", [ABORTED, UNKNOWN])
def test_nothing_of_a_transaction_is_right(end: TransactionEnd) -> None:
    assert found(end, [], offset=-1) == []


def test_committed_record_that_is_missing_is_found() -> None:
    assert (found(COMMITTED, logged(0)), found(COMMITTED, [])) == (["TRANSACTION_END"], ["TRANSACTION_END"])


def test_aborted_record_or_offset_that_is_there_is_found() -> None:
    assert (found(ABORTED, logged(1), offset=-1), found(ABORTED, [])) == (["TRANSACTION_END"], ["TRANSACTION_END"])


def test_torn_transaction_is_found() -> None:
    assert (found(UNKNOWN, logged(0)), found(UNKNOWN, logged(0, 1), offset=-1)) == (["ATOMIC"], ["OFFSETS"])


def test_record_twice_or_out_of_order_is_found() -> None:
    assert (found(COMMITTED, logged(0, 1, 1)), found(COMMITTED, logged(1, 0))) == (["DUPLICATE"], ["ORDER"])


def test_commit_of_a_fenced_producer_is_found() -> None:
    assert found(COMMITTED, logged(0, 1), began_at=9.5) == ["FENCED"]


def test_commit_of_a_producer_that_brokers_forgot_is_found() -> None:
    """A transaction that began before the id expired may be there."""
    assert found(COMMITTED, logged(0, 1), began_at=8.0, forgotten_at=7.0) == ["FORGOTTEN"]
    assert found(COMMITTED, logged(0, 1), began_at=6.0, forgotten_at=7.0) == []
    assert found(UNKNOWN, [], offset=-1, began_at=8.0, forgotten_at=7.0) == []
