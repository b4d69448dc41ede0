"""Every line is accounted for, and the place up to which nothing is missing is known."""

import pytest

from aioproducer.cli.produce.formats import BadLineError
from aioproducer.cli.produce.report import MAX_PROBLEMS, OTHER_REASONS, Tally
from aioproducer.errors import BrokerError, DeliveryTimeoutError, KafkaError, Outcome, ProducerClosedError


@pytest.fixture
def tally() -> Tally:
    """Five lines of `a` sent, one record each."""
    result = Tally()
    result.open_input("a")
    for _ in range(5):
        result.sent(result.read_line())
    return result


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
