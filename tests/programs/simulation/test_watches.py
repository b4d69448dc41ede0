"""What watches the order of callbacks, and the pace of attempts, sees what it is there for."""

import dataclasses

from tests.programs.simulation.callback_turns import CallbackTurns
from tests.programs.simulation.history import History, RecordId, Story
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.resend_watch import AT_ONCE, ResendWatch

BATCH = ("orders", 0, 4711)


def a_plan(**options: object) -> Plan:
    """Return any plan in which leaders move, with these options."""
    return dataclasses.replace(draw_plan("D1", 1), enabled=("stale metadata",)).with_options(acks=-1, **options)


def acknowledged(order: int, *, partition: int = 0, at: float = 1.0) -> Story:
    """Return a record that was acknowledged."""
    story = Story(RecordId(0, 0, order), order, "orders", b"", None, "send", 0.0, partition)
    story.ended_at = at
    return story


def found_in_callbacks(*stories: Story) -> list[str]:
    """Return the invariants that callbacks in this order break."""
    history = History()
    turns = CallbackTurns(a_plan(), history)
    for story in stories:
        turns.called_back(story)
    return [violation.invariant for violation in history.violations]


def found_in_attempts(*times: float, **options: object) -> list[str]:
    """Return the invariants that attempts at these times break."""
    history = History()
    watch = ResendWatch(history, a_plan(retry_backoff_ms=100, retry_backoff_max_ms=1_000, **options))
    for at in times:
        watch.sent(BATCH, 1, at)
    return [violation.invariant for violation in history.violations]


def test_callback_before_that_of_an_earlier_record_is_found() -> None:
    assert found_in_callbacks(acknowledged(2), acknowledged(1)) == ["ORDER"]


def test_callbacks_of_other_partitions_and_moments_are_free() -> None:
    """Order is promised within a partition, and a batch that fails first may end last."""
    assert found_in_callbacks(acknowledged(2), acknowledged(1, partition=1), acknowledged(0, at=2.0)) == []


def test_attempts_without_a_pause_are_found() -> None:
    assert found_in_attempts(*(0.001 * each for each in range(AT_ONCE))) == []
    assert found_in_attempts(*(0.001 * each for each in range(AT_ONCE + 1))) == ["PACE"]


def test_attempt_too_many_is_found() -> None:
    """`retries` count the attempts after the first."""
    assert found_in_attempts(1.0, 2.0, 4.0, retries=2) == []
    assert found_in_attempts(1.0, 2.0, 4.0, 8.0, retries=2) == ["RETRIES"]


def test_pauses_that_do_not_grow_are_found() -> None:
    """Where no leader moves, each is twice as long as the one before."""
    calm = dataclasses.replace(a_plan(retry_backoff_ms=100, retry_backoff_max_ms=1_000), enabled=())
    history = History()
    watch = ResendWatch(history, calm)

    for at in (0.0, 0.1, 0.3, 0.4):
        watch.sent(BATCH, 1, at)

    assert [violation.invariant for violation in history.violations] == ["PACE"]


def test_attempt_after_an_answer_that_is_for_good_is_found() -> None:
    """CORRUPT_MESSAGE, to one attempt more than repetition is worth; known once its answer has arrived."""
    history = History()
    watch = ResendWatch(history, a_plan(retry_backoff_ms=1, retry_backoff_max_ms=1))
    for attempt in range(6):
        key = (1, attempt)
        watch.asked(key, 0, BATCH)
        watch.sent(BATCH, 1, float(attempt))
        watch.refused(key, 0, 2)
        watch.answered(key)

    assert [violation.invariant for violation in history.violations] == ["RETRIES", "RETRIES"]


def test_refusal_that_never_arrives_ends_nothing() -> None:
    history = History()
    watch = ResendWatch(history, a_plan(retry_backoff_ms=1, retry_backoff_max_ms=1))
    for attempt in range(6):
        key = (1, attempt)
        watch.asked(key, 0, BATCH)
        watch.sent(BATCH, 1, float(attempt))
        watch.refused(key, 0, 2)
        watch.answered(key, is_heard=attempt != 3)

    assert [violation.invariant for violation in history.violations] == ["RETRIES"]
