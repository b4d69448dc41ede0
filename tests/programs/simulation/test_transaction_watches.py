"""What watches a transactional producer on the wire, and its excuses, sees what it is there for."""

import dataclasses

import pytest

from aioproducer.testing.fake_broker.wire.produce_wire import PartitionResult
from tests.programs.simulation.asking_watch import AskingWatch
from tests.programs.simulation.history import History
from tests.programs.simulation.pipeline_watch import PipelineWatch
from tests.programs.simulation.plan import draw_plan
from tests.programs.simulation.transaction_excuses import check_excuses
from tests.programs.simulation.transaction_stories import TransactionStory

INIT_PRODUCER_ID = 22
END_TXN = 26
DESCRIBE_TRANSACTIONS = 65
FRAME = bytes(20)
WHO = (0, 1_000, 0)


def asked_again_after(*waits_s: float, code: int = 14) -> list[str]:
    """What is found when a request is refused, each time after a millisecond, and asked again after each wait."""
    history = History()
    plan = dataclasses.replace(draw_plan("D10", 1), enabled=())
    plan = plan.with_options(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    watch, now = AskingWatch(history, plan), 0.0
    for number, wait_s in enumerate((0.0, *waits_s)):
        now += wait_s
        watch.asked((1, number), END_TXN, FRAME, now=now)
        watch.observed((1, number), [code])
        now += 0.001
        watch.answered((1, number), now)
    return [violation.invariant for violation in history.violations]


def renewed_again_after(wait_s: float) -> list[str]:
    """What is found when InitProducerId is refused, and asked again after a wait, each time behind a look."""
    history = History()
    plan = dataclasses.replace(draw_plan("D10", 1), enabled=())
    plan = plan.with_options(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    watch = AskingWatch(history, plan)
    for number, now in enumerate((0.0, wait_s)):
        watch.asked((1, 2 * number), DESCRIBE_TRANSACTIONS, b"look" + FRAME, now=now)
        watch.observed((1, 2 * number), [0])
        watch.asked((1, 2 * number + 1), INIT_PRODUCER_ID, FRAME, now=now)
        watch.observed((1, 2 * number + 1), [14])
    return [violation.invariant for violation in history.violations]


def test_what_was_done_may_be_asked_for_again_at_once() -> None:
    """The abort of a transaction, and that of what a stray opened after it, have the same bytes."""
    assert asked_again_after(0.001, code=0) == []
    assert asked_again_after(0.001, code=14) == ["PACE"]


def sent(*steps: tuple[str, int], is_v1: bool = True) -> list[str]:
    """What is found when batches are sent ("send") and answered (code), by number of request."""
    history = History()
    watch = PipelineWatch(history)
    for step, number in steps:
        key = (1, number)
        if step == "send":
            watch.sent(key, WHO, is_v1=is_v1)
        else:
            watch.observed(key, [PartitionResult(None, None, 0, error_code=int(step))])
            watch.answered(key)
    return [violation.invariant for violation in history.violations]


def test_pauses_as_configured_are_right() -> None:
    """Twice as long each time; short ones where the last transaction is not over yet."""
    assert (asked_again_after(0.1, 0.2, 0.4), asked_again_after(0.005, 0.01, 0.02, 0.02, code=51)) == ([], [])


@pytest.mark.parametrize("waits_s", [(0.001,), (0.1, 0.1), (0.5,), (0.1, 0.9)])
def test_pauses_that_are_too_short_or_too_long_are_found(waits_s: tuple[float, ...]) -> None:
    """The first, or one that did not grow, or grew too much."""
    assert asked_again_after(*waits_s) == ["PACE"]


def test_look_in_between_makes_no_pause_shorter() -> None:
    assert (renewed_again_after(0.1), renewed_again_after(0.01)) == ([], ["PACE"])


def test_second_batch_before_the_first_is_acknowledged_is_found() -> None:
    refused = (("send", 1), ("6", 1), ("send", 2), ("send", 3))

    assert (sent(("send", 1), ("send", 2)), sent(*refused, is_v1=False)) == (["IN_FLIGHT"], ["IN_FLIGHT"])


def test_batches_behind_one_that_was_acknowledged_are_right() -> None:
    acknowledged = (("send", 1), ("0", 1), ("send", 2), ("send", 3))

    assert (sent(*acknowledged), sent(("send", 1), ("send", 2), is_v1=False)) == ([], [])


@pytest.mark.parametrize(
    "code, is_stale, expected",
    [("INVALID_PRODUCER_EPOCH", False, 0), ("TRANSACTION_ABORTABLE", False, 1), ("ILLEGAL_GENERATION", True, 0)],
)
def test_transaction_that_fails_without_need_is_found(code: str, expected: int, *, is_stale: bool) -> None:
    story = TransactionStory(1, 0, 0.0, is_stale=is_stale)
    story.error = f"TransactionAbortableError: it must be aborted: TxnOffsetCommit of 'group-1': {code}: why"

    plan = dataclasses.replace(draw_plan("D11", 1), enabled=())

    assert len([*check_excuses([story], plan)]) == expected
