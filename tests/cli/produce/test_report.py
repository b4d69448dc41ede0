"""The summary of a run."""

from dataclasses import replace

import pytest

from aioproducer.cli.produce.formats import BadLineError
from aioproducer.cli.produce.report import MAX_RANGES_SHOWN, RunResult, Tally, TransactionOutcome, summary
from aioproducer.errors import DeliveryTimeoutError, Outcome

ENDING = RunResult(topic="orders", elapsed_s=0.25, bytes_read=90, acks=-1)


@pytest.fixture
def tally() -> Tally:
    """Line 1 of `a.csv` delivered, lines 2 to 40 each handed over."""
    result = Tally()
    result.open_input("a.csv")
    for _ in range(40):
        result.sent(result.read_line())
    result.delivered_at(1)
    return result


def fail(tally: Tally, *lines: int) -> None:
    """These lines were not delivered."""
    for line in lines:
        tally.failed(line, DeliveryTimeoutError(f"late: {line}", outcome=Outcome.UNKNOWN), is_skipped=False)


def test_people_are_told_which_lines_and_why(tally: Tally) -> None:
    fail(tally, *range(2, 41))

    assert list(summary(replace(ENDING, exit_code=1), tally)) == [
        "a.csv:2-40: 39 records: DeliveryTimeoutError; the first: late: 2",
        "1 of 40 records delivered to orders in 0.2 s",
        "everything up to a.csv:1 was delivered",
    ]


def test_people_are_not_drowned_in_ranges(tally: Tally) -> None:
    fail(tally, *range(2, 41, 2))

    line = next(summary(ENDING, tally))

    assert line.startswith("a.csv:2,4,6,8,10,12,14,16 and 12 lines more: 20 records")
    assert MAX_RANGES_SHOWN == 8


def test_error_before_reading_stands_alone() -> None:
    """Nothing was read, so there is nothing to count."""
    assert list(summary(replace(ENDING, error="no broker"), Tally())) == ["no broker"]


def test_interrupted_transaction_says_when_and_that_none_remains(tally: Tally) -> None:
    result = replace(ENDING, interrupted_by="SIGINT", transaction=TransactionOutcome.ABORTED)

    assert list(summary(result, tally)) == [
        "interrupted after 0.2 s: the transaction is aborted: nothing of the input is in orders"
    ]


def test_unconfirmed_is_not_called_delivered(tally: Tally) -> None:
    assert next(summary(replace(ENDING, acks=0), tally)).startswith("1 record sent (acks=0: not acknowledged)")


@pytest.mark.parametrize("records,elapsed_s,shows", [(99, 2.0, False), (100, 2.0, True), (100, 0.9, False)])
def test_speed_is_shown_of_runs_that_tell_it(records: int, elapsed_s: float, *, shows: bool) -> None:
    """Not of a few records, nor of a short run: that is the time to connect."""
    tally = Tally()
    tally.open_input("a")
    for _ in range(records):
        line = tally.read_line()
        tally.sent(line)
        tally.delivered_at(line)

    (line_of_delivery,) = summary(replace(ENDING, elapsed_s=elapsed_s), tally)

    assert line_of_delivery.startswith(f"{records} records delivered to orders in {elapsed_s:.1f} s")
    assert ("records/s" in line_of_delivery) is shows


def test_first_line_missing_is_said() -> None:
    tally = Tally()
    tally.open_input("a")
    tally.bad(tally.read_line(), BadLineError("not JSON", "why"), is_skipped=False)

    assert list(summary(ENDING, tally)) == [
        "a:1: not JSON: why",
        "0 of 1 records delivered to orders in 0.2 s",
        "nothing was delivered",
    ]
