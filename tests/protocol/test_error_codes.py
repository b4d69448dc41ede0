"""The table of error codes."""

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from aioproducer._protocol.error_codes import ErrorCode

NOT_WRITTEN = {2, 3, 6, 10, 14, 15, 16, 17, 18, 19, 21, 29, 31, 32, 35, 42, 43, 45, 47, 48, 49, 51, 53, 59, 76, 87, 90}
"""Produce error codes that exclude an append by the attempt that they answer."""
NOT_WRITTEN_TOO = {100, 103, 120}


@pytest.mark.parametrize("theirs", KioErrorCode, ids=lambda code: code.name)
def test_every_code_of_kafka_has_a_row(theirs: KioErrorCode) -> None:
    """Same number, same name; retriable where Kafka's exception is, except 8, which names a missing broker."""
    ours = ErrorCode.of(int(theirs))

    assert ours is not None
    assert ours.name.lower() == theirs.name
    assert ours.retriable == (theirs.retriable or ours == 8)


def test_there_is_no_row_too_many() -> None:
    """A code of our own invention would mean nothing to anyone."""
    assert {int(row) for row in ErrorCode} == {int(row) for row in KioErrorCode}


def test_unknown_code_has_no_row() -> None:
    assert ErrorCode.of(999) is None


def test_traits_that_decide_about_records() -> None:
    """The traits are read in Kafka's source, and in part seen on real brokers."""
    assert {int(row) for row in ErrorCode if row.not_written} == NOT_WRITTEN | NOT_WRITTEN_TOO
    assert {int(row) for row in ErrorCode if row.split} == {10, 18}
    assert {int(row) for row in ErrorCode if row.per_record} == {32, 87}
    assert {int(row) for row in ErrorCode if row.sequence} == {45, 46, 47, 59}
    assert {int(row) for row in ErrorCode if row.few_retries} == {2, 35}
    assert {int(row) for row in ErrorCode if row.renegotiate} == {35}
    assert {int(row) for row in ErrorCode if row.idempotent_retry} == {-1}
    assert {int(row) for row in ErrorCode if row.fatal} == {31, 50, 53, 90}


def test_refresh_is_asked_where_metadata_is_wrong() -> None:
    refreshing = {int(row) for row in ErrorCode if row.refresh_metadata}

    assert {3, 5, 6, 8, 9, 56, 74, 75, 100, 103} <= refreshing
    assert not {7, 10, 19, 20} & refreshing


def test_every_row_says_what_it_means() -> None:
    assert all(row.meaning for row in ErrorCode)
