"""The report of `aioproducer produce`: every line is counted, and the summary says up to where none is missing."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.cli.produce.input import BadLineError
from aioproducer.cli.produce.report import (
    MAX_PROBLEMS,
    MAX_RANGES_SHOWN,
    OTHER_REASONS,
    LineRanges,
    RunResult,
    Tally,
    TransactionOutcome,
    summary,
)
from aioproducer.errors import BrokerError, DeliveryTimeoutError, KafkaError, Outcome, ProducerClosedError

ENDING = RunResult(topic="orders", elapsed_s=0.25, bytes_read=90, acks=-1)


def tally_of(lines: int, name: str = "a") -> Tally:
    """Lines of an input, each a record that was sent."""
    tally = Tally()
    tally.open_input(name)
    for _ in range(lines):
        tally.sent(tally.read_line())
    return tally


@pytest.fixture
def forty() -> Tally:
    """Line 1 of `a.csv` delivered, lines 2 to 40 each handed over."""
    tally = tally_of(40, "a.csv")
    tally.delivered_at(1)
    return tally


def fail(tally: Tally, *lines: int) -> None:
    """These lines were not delivered."""
    for line in lines:
        tally.failed(line, DeliveryTimeoutError(f"late: {line}", outcome=Outcome.UNKNOWN), is_skipped=False)


def test_people_are_told_which_lines_and_why(forty: Tally) -> None:
    fail(forty, *range(2, 41))

    assert list(summary(replace(ENDING, exit_code=1), forty)) == [
        "a.csv:2-40: 39 records: DeliveryTimeoutError; the first: late: 2",
        "1 of 40 records delivered to orders in 0.2 s",
        "everything up to a.csv:1 was delivered",
    ]


def test_people_are_not_drowned_in_ranges(forty: Tally) -> None:
    fail(forty, *range(2, 41, 2))

    line = next(summary(ENDING, forty))

    assert line.startswith("a.csv:2,4,6,8,10,12,14,16 and 12 lines more: 20 records")
    assert MAX_RANGES_SHOWN == 8


def test_error_before_reading_stands_alone() -> None:
    """Nothing was read, so there is nothing to count."""
    assert list(summary(replace(ENDING, error="no broker"), Tally())) == ["no broker"]


def test_interrupted_transaction_says_when_and_that_none_remains(forty: Tally) -> None:
    result = replace(ENDING, interrupted_by="SIGINT", transaction=TransactionOutcome.ABORTED)

    assert list(summary(result, forty)) == [
        "interrupted after 0.2 s: the transaction is aborted: nothing of the input is in orders"
    ]


def test_unconfirmed_is_not_called_delivered(forty: Tally) -> None:
    assert next(summary(replace(ENDING, acks=0), forty)).startswith("1 record sent (acks=0: not acknowledged)")


@pytest.mark.parametrize("records,elapsed_s,shows", [(99, 2.0, False), (100, 2.0, True), (100, 0.9, False)])
def test_speed_is_shown_of_runs_that_tell_it(records: int, elapsed_s: float, *, shows: bool) -> None:
    """Not of a few records, nor of a short run: that is the time to connect."""
    tally = tally_of(records)
    for line in range(1, records + 1):
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


@pytest.fixture
def tally() -> Tally:
    return tally_of(5)


def test_everything_delivered_is_complete(tally: Tally) -> None:
    for line in [3, 1, 2, 5, 4]:
        tally.delivered_at(line)

    assert tally.is_complete
    assert (tally.delivered, tally.not_delivered, tally.complete_to) == (5, 0, 5)


def test_complete_up_to_the_first_line_without_an_answer(tally: Tally) -> None:
    for line in (1, 2, 4, 5):
        tally.delivered_at(line)

    assert tally.complete_to == 2
    assert not tally.is_complete


def test_complete_up_to_the_first_failure(tally: Tally) -> None:
    tally.failed(2, DeliveryTimeoutError("late", outcome=Outcome.UNKNOWN), is_skipped=False)
    for line in (1, 3, 4, 5):
        tally.delivered_at(line)

    assert (tally.complete_to, tally.delivered, tally.not_delivered) == (1, 4, 1)


def test_skipped_and_blank_lines_are_not_missing() -> None:
    tally = Tally()
    tally.open_input("a")
    tally.read_line()
    tally.blank()
    tally.bad(tally.read_line(), BadLineError("not JSON"), is_skipped=True)

    assert tally.complete_to == 2
    assert not tally.is_complete


def test_withdrawn_record_was_never_read(tally: Tally) -> None:
    for line in range(1, 5):
        tally.delivered_at(line)
    tally.withdrawn(5)

    assert tally.is_complete
    assert tally.complete_to == 4


def test_second_answer_changes_nothing(tally: Tally) -> None:
    """A failed call may be told of twice: by the call and by the callback."""
    error = DeliveryTimeoutError("late", outcome=Outcome.NOT_WRITTEN)
    tally.failed(1, error, is_skipped=False)
    tally.failed(1, error, is_skipped=False)
    tally.delivered_at(1)

    assert (tally.not_delivered, tally.delivered) == (1, 0)


def test_failures_are_grouped_by_what_they_have_in_common(tally: Tally) -> None:
    errors: list[KafkaError] = [
        DeliveryTimeoutError("after 3 attempts", outcome=Outcome.UNKNOWN),
        DeliveryTimeoutError("after 4 attempts", outcome=Outcome.UNKNOWN),
        DeliveryTimeoutError("after 0 attempts", outcome=Outcome.NOT_WRITTEN),
        BrokerError("no", code=29, outcome=Outcome.NOT_WRITTEN),
        ProducerClosedError("closed", outcome=Outcome.UNKNOWN),
    ]
    for line, error in enumerate(errors, 1):
        tally.failed(line, error, is_skipped=False)

    assert [(problem.reason, problem.records, problem.example) for problem in tally.problems.values()] == [
        ("DeliveryTimeoutError", 2, "after 3 attempts"),
        ("DeliveryTimeoutError", 1, "after 0 attempts"),
        ("TOPIC_AUTHORIZATION_FAILED", 1, "no"),
        ("not acknowledged before the command ended", 1, "closed"),
    ]


def test_kinds_of_failure_are_bounded() -> None:
    """The last group takes the rest."""
    tally = Tally()
    tally.open_input("a")
    for number in range(MAX_PROBLEMS + 20):
        tally.bad(tally.read_line(), BadLineError(f"reason {number}"), is_skipped=True)

    assert len(tally.problems) == MAX_PROBLEMS + 1
    *_, last = tally.problems.values()
    assert (last.reason, last.records) == (OTHER_REASONS, 20)


def test_lines_are_named_by_their_input() -> None:
    tally = Tally()
    for name, lines in [("empty", 0), ("a", 3), ("b", 3)]:
        tally.open_input(name)
        for _ in range(lines):
            tally.bad(tally.read_line(), BadLineError("bad"), is_skipped=True)
    (problem,) = tally.problems.values()

    assert [tally.position(line) for line in (1, 3, 4, 6)] == [("a", 1), ("a", 3), ("b", 1), ("b", 3)]
    assert list(tally.ranges(problem.lines)) == [("a", 1, 3), ("b", 1, 3)]


@given(st.permutations(range(1, 15)), st.integers(0, 14))
def test_neighbours_become_one_range(order: list[int], count: int) -> None:
    ranges = LineRanges()
    for line in order[:count]:
        ranges.add(line, line)

    kept = list(ranges)
    assert [line for first, last in kept for line in range(first, last + 1)] == sorted(order[:count])
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(kept))
    assert ranges.count == count


def test_highest_are_left_out_and_counted() -> None:
    ranges = LineRanges(max_ranges=2)
    for first in (9, 1, 5):
        ranges.add(first, first + 1)

    assert list(ranges) == [(1, 2), (5, 6)]
    assert ranges.count == 6
