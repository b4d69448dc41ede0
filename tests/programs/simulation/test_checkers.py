"""Each checker finds what it is there to find, and nothing else."""

import contextlib
import dataclasses
from random import Random

import pytest

from aioproducer.records import ProducerRecord, RecordMetadata, TopicPartition
from aioproducer.testing.fake_broker.apis.produce import ProduceResult
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from tests.programs.simulation.allowed_failures import check_transaction_failures
from tests.programs.simulation.history import History, Operation, RecordId
from tests.programs.simulation.invariant_checkers import CallbackOrderChecker
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.transaction_checker import (
    Outcome,
    Place,
    TransactionEnd,
    TransactionOperation,
    check_transactions,
)
from tests.programs.simulation.transaction_wire_checker import (
    Claim,
    FencingByChance,
    PipelineChecker,
    RequestPaceChecker,
)
from tests.programs.simulation.wire_checker import ATTEMPTS_AT_ONCE, ResendChecker
from tests.programs.simulation.workload import UsersInterceptor

COMMITTED, ABORTED, UNKNOWN = TransactionEnd.COMMITTED, TransactionEnd.ABORTED, TransactionEnd.UNKNOWN


def logged(*numbers: int) -> list[LoggedRecord]:
    return [
        LoggedRecord(at, None, Place(1, number).payload(b"x"), (), 0, 0, 7, 0, at) for at, number in enumerate(numbers)
    ]


def found(
    end: TransactionEnd,
    seen: list[LoggedRecord],
    *,
    offset: int = 1,
    began_at: float = 0.0,
    forgotten_at: float = 99.0,
) -> list[str]:
    """Return the checker's result on a transaction of records 0 and 1 and an offset."""
    operation = TransactionOperation(1, 0, began_at, records={0: 0, 1: 0}, has_offset=True, end=end)
    outcome = Outcome(
        committed={0: seen},
        batches={},
        offsets={"group-1": offset},
        fenced_at={0: 9.0},
        forgotten_at={0: forgotten_at},
    )
    return [violation.invariant for violation in check_transactions([operation], outcome)]


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


BATCH = ("orders", 0, 4711)


def a_plan(**options: object) -> Plan:
    return dataclasses.replace(draw_plan("D1", 1), enabled=("stale metadata",)).with_options(acks=-1, **options)


def acknowledged(order: int, *, partition: int = 0, at: float = 1.0) -> Operation:
    operation = Operation(RecordId(0, 0, order), order, "orders", b"", None, "send", 0.0, partition)
    operation.ended_at = at
    return operation


def found_in_callbacks(*operations: Operation) -> list[str]:
    history = History()
    turns = CallbackOrderChecker(a_plan(), history)
    for operation in operations:
        turns.called_back(operation)
    return [violation.invariant for violation in history.violations]


def found_in_attempts(*times: float, **options: object) -> list[str]:
    history = History()
    checker = ResendChecker(history, a_plan(retry_backoff_ms=100, retry_backoff_max_ms=1_000, **options))
    for at in times:
        checker.sent(BATCH, 1, at)
    return [violation.invariant for violation in history.violations]


def test_callback_before_that_of_an_earlier_record_is_found() -> None:
    assert found_in_callbacks(acknowledged(2), acknowledged(1)) == ["ORDER"]


def test_callbacks_of_other_partitions_and_moments_are_free() -> None:
    assert found_in_callbacks(acknowledged(2), acknowledged(1, partition=1), acknowledged(0, at=2.0)) == []


def test_attempts_without_a_pause_are_found() -> None:
    assert found_in_attempts(*(0.001 * each for each in range(ATTEMPTS_AT_ONCE))) == []
    assert found_in_attempts(*(0.001 * each for each in range(ATTEMPTS_AT_ONCE + 1))) == ["PACE"]


def test_attempt_too_many_is_found() -> None:
    """`retries` count the attempts after the first."""
    assert found_in_attempts(1.0, 2.0, 4.0, retries=2) == []
    assert found_in_attempts(1.0, 2.0, 4.0, 8.0, retries=2) == ["RETRIES"]


def test_pauses_that_do_not_grow_are_found() -> None:
    calm = dataclasses.replace(a_plan(retry_backoff_ms=100, retry_backoff_max_ms=1_000), enabled=())
    history = History()
    checker = ResendChecker(history, calm)

    for at in (0.0, 0.1, 0.3, 0.4):
        checker.sent(BATCH, 1, at)

    assert [violation.invariant for violation in history.violations] == ["PACE"]


@pytest.mark.parametrize("unheard, found", [(None, ["RETRIES", "RETRIES"]), (3, ["RETRIES"])])
def test_attempt_after_a_refusal_that_is_for_good_is_found(unheard: int | None, found: list[str]) -> None:
    """CORRUPT_MESSAGE to one attempt more than repetition is worth; known once its response has arrived."""
    history = History()
    checker = ResendChecker(history, a_plan(retry_backoff_ms=1, retry_backoff_max_ms=1))
    for attempt in range(6):
        key = (1, attempt)
        checker.asked(key, 0, BATCH)
        checker.sent(BATCH, 1, float(attempt))
        checker.refused(key, 0, 2)
        checker.answered(key, is_heard=attempt != unheard)

    assert [violation.invariant for violation in history.violations] == found


# Checkers of a transactional producer on the wire, and of the failures that its plan allows.

INIT_PRODUCER_ID = 22
END_TXN = 26
DESCRIBE_TRANSACTIONS = 65
FRAME = bytes(20)
WHO = (0, 1_000, 0)


def asking(history: History) -> RequestPaceChecker:
    plan = dataclasses.replace(draw_plan("D10", 1), enabled=())
    return RequestPaceChecker(history, plan.with_options(retry_backoff_ms=100, retry_backoff_max_ms=1_000))


def asked_again_after(*waits_s: float, code: int = 14) -> list[str]:
    history = History()
    checker, now = asking(history), 0.0
    for number, wait_s in enumerate((0.0, *waits_s)):
        now += wait_s
        checker.asked((1, number), END_TXN, FRAME, now=now)
        checker.observed((1, number), [code])
        now += 0.001
        checker.answered((1, number), now)
    return [violation.invariant for violation in history.violations]


def renewed_again_after(wait_s: float) -> list[str]:
    history = History()
    checker = asking(history)
    for number, now in enumerate((0.0, wait_s)):
        checker.asked((1, 2 * number), DESCRIBE_TRANSACTIONS, b"look" + FRAME, now=now)
        checker.observed((1, 2 * number), [0])
        checker.asked((1, 2 * number + 1), INIT_PRODUCER_ID, FRAME, now=now)
        checker.observed((1, 2 * number + 1), [14])
    return [violation.invariant for violation in history.violations]


def test_what_was_done_may_be_asked_for_again_at_once() -> None:
    """The abort of a transaction, and that of what a stray request opened after it, have the same bytes."""
    assert asked_again_after(0.001, code=0) == []
    assert asked_again_after(0.001, code=14) == ["PACE"]


def sent(*steps: tuple[str, int], is_v1: bool = True) -> list[str]:
    history = History()
    checker = PipelineChecker(history)
    for step, number in steps:
        key = (1, number)
        if step == "send":
            checker.sent(key, WHO, is_v1=is_v1)
        else:
            checker.observed(key, [ProduceResult(None, None, 0, error_code=int(step))])
            checker.answered(key)
    return [violation.invariant for violation in history.violations]


def test_pauses_as_configured_are_right() -> None:
    assert (asked_again_after(0.1, 0.2, 0.4), asked_again_after(0.005, 0.01, 0.02, 0.02, code=51)) == ([], [])


@pytest.mark.parametrize("waits_s", [(0.001,), (0.1, 0.1), (0.5,), (0.1, 0.9)])
def test_pauses_that_are_too_short_or_too_long_are_found(waits_s: tuple[float, ...]) -> None:
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
    operation = TransactionOperation(1, 0, 0.0, is_stale=is_stale)
    operation.error = f"TransactionAbortableError: it must be aborted: TxnOffsetCommit of 'group-1': {code}: why"

    plan = dataclasses.replace(draw_plan("D11", 1), enabled=())

    assert len([*check_transaction_failures([operation], plan)]) == expected


# A fencing that waiting would have averted is not allowed.

TIMEOUT_S = 2.0
CLAIM = Claim(1_000, 0)
FIRST, RENEWAL, SUCCESSOR = (1, 0), (1, 1), (2, 0)


class Lives:
    def __init__(self, *, asked_on: tuple[int, int] = RENEWAL) -> None:
        self.now = 0.0
        self.fencing = FencingByChance(lambda: self.now, TIMEOUT_S)
        self.fencing.first_asked(FIRST)
        self.fencing.answered(FIRST)
        self.fencing.renewal_asked(asked_on)
        self.now = 1.0

    def abort_after(self, seconds: float) -> int:
        """Return how often a fencing is allowed, when the request for another epoch finds a transaction after that."""
        self.fencing.connection_lost(1)
        self.now += seconds
        self.fencing.has_aborted(RENEWAL, CLAIM)
        return self.fencing.times


@pytest.mark.parametrize("seconds, times", [(0.0, 0), (1.9, 0), (2.0, 1), (9.0, 1)])
def test_late_request_is_waited_for_as_long_as_documented(seconds: float, times: int) -> None:
    assert Lives().abort_after(seconds) == times


def test_successor_cannot_know_what_to_wait_for() -> None:
    lives = Lives()
    lives.fencing.first_asked(SUCCESSOR)

    assert lives.abort_after(0.5) == 1


def test_answered_request_is_not_late() -> None:
    lives = Lives()
    lives.fencing.answered(RENEWAL)

    assert lives.abort_after(9.0) == 0


def test_request_on_another_connection_is_not_lost() -> None:
    assert Lives(asked_on=(2, 1)).abort_after(9.0) == 0


def test_lost_first_request_fences_the_ids_owner() -> None:
    lives = Lives()
    lives.fencing.first_asked(SUCCESSOR)
    lives.fencing.connection_lost(SUCCESSOR[0])

    assert lives.fencing.times == 1


def test_transaction_that_was_begun_late_is_aborted() -> None:
    lives = Lives()
    lives.fencing.begun_late(CLAIM)
    assert lives.abort_after(0.5) == 1

    lives = Lives()
    lives.fencing.begun_late(CLAIM)
    lives.fencing.ended(CLAIM)
    assert lives.abort_after(0.5) == 0


# The interceptor of the simulation's user notices a missing notification, and a double one.

PLACE = TopicPartition("orders", 0)


def passed(interceptor: UsersInterceptor, *, records: int) -> int:
    count = 0
    for _ in range(records):
        try:
            count += interceptor.on_send(ProducerRecord(PLACE.topic, b"value")) is not None
        except RuntimeError:
            count += 1  # it fails on purpose: the producer goes on with the record
    return count


def tell(interceptor: UsersInterceptor, *, ends: int) -> None:
    """Notify it of some records, every other of which failed."""
    for number in range(ends):
        with contextlib.suppress(RuntimeError):
            if number % 2:
                interceptor.on_error(PLACE, ValueError("too old"), ())
            else:
                interceptor.on_acknowledgement(RecordMetadata(*PLACE, PLACE, number, 0, 0, 0), ())


@pytest.mark.parametrize("more, found", [(0, []), (1, ["ENDS_ONCE"]), (-1, ["ENDS_ONCE"])])
def test_each_record_that_passes_has_one_end(more: int, found: list[str]) -> None:
    interceptor, invariants = UsersInterceptor(Random(1)), []
    count = passed(interceptor, records=200)
    assert 0 < count < 200

    tell(interceptor, ends=count + more)
    interceptor.check(lambda invariant, _: invariants.append(invariant))

    assert invariants == found
