"""What becomes of a batch, for every error code there is and could be, and for everything known of the batch."""

from itertools import product

import pytest

from aioproducer._protocol.produce import PartitionResponse
from aioproducer._sender.produce_outcome import (
    BatchFacts,
    Complete,
    Fail,
    Policy,
    ProduceOutcome,
    Refuse,
    Retry,
    Split,
    decide,
    decide_lost,
)
from aioproducer.errors import Outcome

IDEMPOTENT = Policy(acks=-1, is_idempotent=True, retries=2**31 - 1)
TRANSACTIONAL = Policy(acks=-1, is_idempotent=True, retries=2**31 - 1, is_transactional=True)
PLAIN = Policy(acks=-1, is_idempotent=False, retries=2**31 - 1)
LEADER_ONLY = Policy(acks=1, is_idempotent=False, retries=2**31 - 1)
NO_ACKS = Policy(acks=0, is_idempotent=False, retries=2**31 - 1)
ONCE = Policy(acks=-1, is_idempotent=False, retries=0)

FIRST = BatchFacts(attempts=1, records=5)
AGAIN = BatchFacts(attempts=2, records=5)
AMBIGUOUS = BatchFacts(attempts=2, records=5, maybe_written=True)
SINGLE = BatchFacts(attempts=1, records=1)

ALL_FACTS = [
    BatchFacts(
        attempts=attempts,
        records=records,
        maybe_written=maybe_written,
        is_first_unresolved=is_first,
        successor_acked=successor_acked,
        repeats_offset=repeats,
    )
    for attempts, records, maybe_written, is_first, successor_acked, repeats in product(
        (1, 2, 4), (1, 5), (False, True), (False, True), (False, True), (False, True)
    )
    if attempts > 1 or not maybe_written
]

# The table of the error codes' reference, once more and by hand: (may be written, retriable, refreshes metadata).
NOT_WRITTEN_RETRIED = {2, 14, 15, 16, 19, 51}
NOT_WRITTEN_FAILED = {17, 21, 29, 31, 42, 43, 48, 49, 53, 76, 90, 120}
SUSPECTING = {3, 6}
REFRESHED = {3, 6, 100, 103, 5, 8, 9, 13, 56, 74, 75}
AMBIGUOUS_CODES = {7, 20, 5, 8, 9, 13, 56, 74, 75}
FATAL = {31, 53, 90}

# And row by row: N (not written), M (may be), and what becomes of a fresh batch of an idempotent producer.
ROWS: dict[int, tuple[str, type]] = {
    0: ("written", Complete),
    -1: ("M", Retry),
    2: ("N", Retry),
    3: ("N", Retry),
    **dict.fromkeys((5, 8, 9, 74, 75), ("M", Retry)),
    6: ("N", Retry),
    7: ("M", Retry),
    10: ("N", Split),
    13: ("M", Retry),
    **dict.fromkeys((14, 15, 16), ("N", Retry)),
    17: ("N", Fail),
    18: ("N", Split),
    19: ("N", Retry),
    20: ("M", Retry),
    21: ("N", Fail),
    29: ("N", Fail),
    31: ("N", Fail),
    32: ("N", Fail),
    35: ("N", Retry),
    **dict.fromkeys((42, 43, 76), ("N", Fail)),
    44: ("M", Fail),
    45: ("N", Retry),
    46: ("M", Fail),
    47: ("N", Fail),
    48: ("N", Fail),
    49: ("N", Fail),
    51: ("N", Retry),
    53: ("N", Fail),
    56: ("M", Retry),
    59: ("N", Retry),
    87: ("N", Fail),
    90: ("N", Fail),
    100: ("N", Retry),
    103: ("N", Retry),
    120: ("N", Fail),
    **dict.fromkeys((1, 4, 11, 12, 22, 55, 58, 97, 134, 999, -2, -32768, 32767), ("M", Fail)),
}


def answer(code: int, *, base_offset: int = -1, records: tuple[tuple[int, str | None], ...] = ()) -> PartitionResponse:
    return PartitionResponse(
        topic="t",
        topic_id=None,
        partition=0,
        error_code=code,
        base_offset=base_offset,
        log_append_time=-1,
        log_start_offset=0,
        record_errors=records,
        error_message=None,
        leader_id=-1,
        leader_epoch=-1,
    )


def outcome_of(decided: ProduceOutcome) -> Outcome | None:
    return decided.outcome if isinstance(decided, Fail) else None


@pytest.mark.parametrize("policy", [IDEMPOTENT, LEADER_ONLY, ONCE], ids=["idempotent", "acks=1", "retries=0"])
@pytest.mark.slow
def test_only_code_zero_and_known_copies_mean_success(policy: Policy) -> None:
    successes = {
        code
        for code in range(-32768, 32768)
        for facts in (FIRST, AMBIGUOUS)
        if isinstance(decide(answer(code), facts, policy), Complete)
    }

    assert successes == {0, 46}


@pytest.mark.slow
def test_unknown_codes_fail_with_unknown_outcome() -> None:
    """Neither a success, nor an endless retry, nor a promise that it was not written."""
    known = set(range(-1, 134))

    decided = {decide(answer(code), FIRST, IDEMPOTENT) for code in range(-32768, 32768) if code not in known}

    assert {type(each) for each in decided} == {Fail}
    assert {outcome_of(each) for each in decided} == {Outcome.UNKNOWN}


@pytest.mark.parametrize("code", ROWS)
def test_row_of_the_reference_says_what_the_batch_is(code: int) -> None:
    """With attempts left it goes on as the row says; with none it fails, and never claims more than is known."""
    written, goes_on = ROWS[code]

    decided = decide(answer(code), FIRST, IDEMPOTENT)
    assert type(decided) is goes_on
    for attempts in (1, 5):
        last = decide(answer(code), SINGLE._replace(attempts=attempts), ONCE)
        assert isinstance(last, Complete) is (code == 0)
        if not isinstance(last, Complete):
            assert outcome_of(last) is (Outcome.NOT_WRITTEN if written == "N" else Outcome.UNKNOWN)


@pytest.mark.parametrize(
    "policy", [IDEMPOTENT, PLAIN, LEADER_ONLY, ONCE], ids=["idempotent", "plain", "acks=1", "once"]
)
@pytest.mark.parametrize("base_offset", [-1, 0, 7])
def test_every_code_has_an_outcome_for_all_facts(policy: Policy, base_offset: int) -> None:
    for code, facts in product(range(-1, 134), ALL_FACTS):
        decided = decide(answer(code, base_offset=base_offset, records=((0, None),)), facts, policy)

        assert isinstance(decided, ProduceOutcome)
        assert not isinstance(decided, Complete) or code in {0, 46}
        assert not isinstance(decided, Retry) or facts.attempts <= policy.retries or decided.is_consequence
        assert not isinstance(decided, Split | Refuse) or facts.records > 1


@pytest.mark.parametrize("facts", [facts for facts in ALL_FACTS if facts.maybe_written], ids=str)
def test_no_answer_ever_clears_an_earlier_doubt(facts: BatchFacts) -> None:
    """An ambiguous batch never fails as not written, is never split and never loses records to a refusal."""
    for code in range(-1, 134):
        decided = decide(answer(code, records=((0, None),)), facts, IDEMPOTENT)

        assert not isinstance(decided, Split | Refuse), code
        assert outcome_of(decided) is not Outcome.NOT_WRITTEN, code


@pytest.mark.parametrize("facts", ALL_FACTS, ids=str)
def test_error_with_an_offset_may_be_written_under_acks_all(facts: BatchFacts) -> None:
    """A leader that appended the record and was deposed answered 6 with the offset."""
    for code in (*range(-1, 0), *range(1, 134)):
        decided = decide(answer(code, base_offset=7), facts, IDEMPOTENT)

        assert outcome_of(decided) is not Outcome.NOT_WRITTEN, code
        assert not isinstance(decided, Split | Refuse), code
        assert not isinstance(decided, Retry) or decided.maybe_written, code


@pytest.mark.parametrize("code", sorted(NOT_WRITTEN_RETRIED | REFRESHED | AMBIGUOUS_CODES))
def test_passing_error_is_tried_again(code: int) -> None:
    """With fresh metadata where that may help."""
    is_ambiguous = code in AMBIGUOUS_CODES
    expected = Retry(
        maybe_written=is_ambiguous,
        refresh_metadata=code in REFRESHED,
        suspects_topic=code in SUSPECTING,
        is_soon=code == 51,
    )

    assert decide(answer(code), FIRST, IDEMPOTENT) == expected


@pytest.mark.parametrize("code", range(-10, 200))
def test_in_a_transaction_no_batch_ever_takes_another_identity(code: int) -> None:
    """The epoch is the coordinator's: a batch that would need another one fails, and its transaction with it."""
    refused = ((0, "because"),)

    for facts in (FIRST, FIRST._replace(records=3), FIRST._replace(maybe_written=True)):
        outcome = decide(answer(code, records=refused), facts, TRANSACTIONAL)

        assert not isinstance(outcome, Refuse)
        assert not (isinstance(outcome, Retry) and outcome.changes_epoch)


@pytest.mark.parametrize("code", [45, 47, 48, 59, 120])
def test_forgotten_transaction_ends_the_batch_alone(code: int) -> None:
    """Its transaction is aborted, and the producer goes on."""
    outcome = decide(answer(code), FIRST, TRANSACTIONAL)

    assert isinstance(outcome, Fail)
    assert (outcome.outcome, outcome.is_fatal) == (Outcome.NOT_WRITTEN, False)


@pytest.mark.parametrize("code", sorted(NOT_WRITTEN_FAILED))
def test_final_refusal_fails_at_once(code: int) -> None:
    decided, plain = (decide(answer(code), FIRST, policy) for policy in (IDEMPOTENT, PLAIN))

    assert isinstance(decided, Fail)
    assert plain == decided._replace(is_fatal=False)
    assert (decided.outcome, decided.code, decided.is_fatal) == (Outcome.NOT_WRITTEN, code, code in FATAL)


def test_unknown_server_error_is_retried_if_idempotent() -> None:
    """The broker may have appended it."""
    assert decide(answer(-1), FIRST, IDEMPOTENT) == Retry(maybe_written=True)
    assert outcome_of(decide(answer(-1), FIRST, PLAIN)) is Outcome.UNKNOWN


@pytest.mark.parametrize("code", [2, 35])
def test_lasting_errors_are_retried_a_few_times_only(code: int) -> None:
    """A corrupt batch is probably our own defect; the version is negotiated again each time."""
    last, over = BatchFacts(attempts=3, records=1), BatchFacts(attempts=4, records=1)

    assert isinstance(decide(answer(code), last, IDEMPOTENT), Retry)
    assert outcome_of(decide(answer(code), over, IDEMPOTENT)) is Outcome.NOT_WRITTEN


def test_batch_in_a_version_that_is_refused_is_sent_again() -> None:
    assert decide(answer(35), FIRST, PLAIN) == Retry(maybe_written=False)


def test_not_leader_with_an_offset_is_certain_under_acks_1() -> None:
    """There the leader answers before anyone copies."""
    decided = decide(answer(6, base_offset=3), FIRST, LEADER_ONLY)

    assert decided == Retry(maybe_written=False, refresh_metadata=True, suspects_topic=True)


@pytest.mark.parametrize("code", [10, 18])
def test_too_large_is_split_if_it_can_be(code: int) -> None:
    overtaken = BatchFacts(attempts=1, records=5, successor_acked=True)

    assert decide(answer(code), FIRST, IDEMPOTENT) == Split()
    assert decide(answer(code), AGAIN, IDEMPOTENT) == Split()
    assert outcome_of(decide(answer(code), SINGLE, IDEMPOTENT)) is Outcome.NOT_WRITTEN
    assert outcome_of(decide(answer(code), overtaken, IDEMPOTENT)) is Outcome.NOT_WRITTEN
    assert outcome_of(decide(answer(code), AMBIGUOUS, IDEMPOTENT)) is Outcome.UNKNOWN


@pytest.mark.parametrize("code", [32, 87])
def test_refused_records_are_named_once_and_in_order(code: int) -> None:
    records = ((3, "bad"), (1, None), (3, "bad"))

    assert decide(answer(code, records=records), FIRST, IDEMPOTENT) == Refuse(code, ((1, None), (3, "bad")))


def test_refused_single_record_has_its_own_message() -> None:
    decided = decide(answer(32, records=((0, "timestamp out of range"),)), SINGLE, IDEMPOTENT)

    assert isinstance(decided, Fail)
    assert decided.reason == "INVALID_TIMESTAMP: timestamp out of range"


@pytest.mark.parametrize("records", [(), ((5, None),), ((-1, None),)], ids=["none", "too high", "negative"])
def test_refusal_without_a_valid_record_fails_the_batch(records: tuple[tuple[int, str | None], ...]) -> None:
    assert outcome_of(decide(answer(87, records=records), FIRST, IDEMPOTENT)) is Outcome.NOT_WRITTEN


def test_out_of_order_waits_for_the_predecessor() -> None:
    later = BatchFacts(attempts=1, records=5, is_first_unresolved=False)

    assert decide(answer(45), later, IDEMPOTENT) == Retry(maybe_written=False, is_consequence=True)


@pytest.mark.parametrize("is_behind_gap", [False, True])
def test_out_of_order_of_the_first_changes_the_epoch(*, is_behind_gap: bool) -> None:
    """The log lost something, or a restart shrank what the broker remembers; behind a gap it needs no explanation."""
    expected = Retry(maybe_written=False, changes_epoch=True, is_consequence=is_behind_gap)

    assert decide(answer(45), FIRST._replace(is_behind_gap=is_behind_gap), IDEMPOTENT) == expected


def test_out_of_order_of_an_ambiguous_batch_is_the_end() -> None:
    """It never becomes success: the broker may have forgotten it."""
    assert outcome_of(decide(answer(45), AMBIGUOUS, IDEMPOTENT)) is Outcome.UNKNOWN


@pytest.mark.parametrize("code", [45, 59])
def test_overtaken_batch_gets_no_other_identity(code: int) -> None:
    overtaken = BatchFacts(attempts=2, records=5, successor_acked=True)

    assert outcome_of(decide(answer(code), overtaken, IDEMPOTENT)) is Outcome.NOT_WRITTEN


def test_forgotten_producer_id_is_replaced() -> None:
    """Brokers before 2.5 say so when their state has expired."""
    assert decide(answer(59), FIRST, IDEMPOTENT) == Retry(
        maybe_written=False, changes_epoch=True, loses_producer_id=True
    )


def test_duplicate_of_a_resent_batch_succeeds_without_offset() -> None:
    """No broker since 1.0.2 sends it."""
    assert decide(answer(46), AMBIGUOUS, IDEMPOTENT) == Complete(-1, log_append_time=-1, log_start_offset=0)


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("code, repeats", [(46, False), (0, True)], ids=["error", "old offset"])
def test_copy_of_an_unwritten_batch_fails(attempts: int, code: int, *, repeats: bool) -> None:
    """The broker dropped the record as a copy: never success, also not after attempts that wrote nothing."""
    facts = BatchFacts(attempts=attempts, records=5, repeats_offset=repeats)

    assert outcome_of(decide(answer(code, base_offset=4), facts, IDEMPOTENT)) is Outcome.UNKNOWN


def test_old_offset_on_a_later_attempt_is_success() -> None:
    """That is what a retry after a lost answer gets."""
    facts = BatchFacts(attempts=2, records=5, maybe_written=True, repeats_offset=True)

    assert decide(answer(0, base_offset=4), facts, IDEMPOTENT) == Complete(4, -1, 0)


def test_copy_keeps_the_records_own_timestamps() -> None:
    """Brokers answer to a copy with the batch's latest timestamp, also where the log gives none."""
    facts = BatchFacts(attempts=2, records=5, maybe_written=True, max_timestamp=1_002)
    echo = answer(0, base_offset=4)._replace(log_append_time=1_002)

    assert decide(echo, facts, IDEMPOTENT) == Complete(4, -1, 0)
    assert decide(echo, facts._replace(maybe_written=False), IDEMPOTENT) == Complete(4, 1_002, 0)
    assert decide(echo._replace(log_append_time=2_000), facts, IDEMPOTENT) == Complete(4, 2_000, 0)


@pytest.mark.parametrize("given", [None, answer(0, base_offset=-2)], ids=["left out", "nonsense"])
def test_answer_that_cannot_be_used_counts_as_a_lost_connection(given: PartitionResponse | None) -> None:
    assert decide(given, FIRST, IDEMPOTENT) == Retry(maybe_written=True, refresh_metadata=True)
    assert outcome_of(decide(given, FIRST, ONCE)) is Outcome.UNKNOWN


def test_lost_connection_is_retried_as_ambiguous() -> None:
    assert decide_lost(FIRST, IDEMPOTENT) == Retry(maybe_written=True, refresh_metadata=True)
    assert outcome_of(decide_lost(FIRST, ONCE)) is Outcome.UNKNOWN


def test_lost_connection_ends_records_that_ask_for_no_answer() -> None:
    """The bytes may have left or not."""
    assert outcome_of(decide_lost(FIRST, NO_ACKS)) is Outcome.UNKNOWN
