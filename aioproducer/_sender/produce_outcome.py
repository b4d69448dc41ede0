"""The outcome of a batch by the broker's response: the only place where an error code of it decides.

`decide` is pure: (response, facts of the batch, policy) -> Complete | Retry | Split | Refuse | Fail.

A response is about one attempt. Whether the *batch* may be in the log is another question: after an attempt without a
response, or with one that does not exclude the append, the batch stays ambiguous (`maybe_written`) until a success. No
later "not written" response clears that.

Source: Sender.completeBatch and canRetry in Apache Kafka; the rows of docs/reference/errors.md were read in Kafka's
source and tried on 3.9.1 and 4.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer.errors import Outcome

if TYPE_CHECKING:
    from aioproducer._protocol.produce import PartitionResponse

FEW_RETRIES: Final = 3
"""Attempts after an error that a retry is unlikely to cure (CORRUPT_MESSAGE, UNSUPPORTED_VERSION)."""

NO_OFFSET: Final = -1

_OF_ANOTHER_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER))
"""As a topic that was deleted and made again answers; `_network/cluster_updates.py` says what these allow."""


class Policy(NamedTuple):
    """The options of the producer that count."""

    acks: int  # -1 (all), 0 or 1
    is_idempotent: bool
    retries: int  # attempts after the first
    is_transactional: bool = False  # a batch that would need another identity fails, and its transaction with it


class BatchFacts(NamedTuple):
    """The facts known of the batch when the response comes."""

    attempts: int  # including this one, without those that were put off for no fault of the batch
    records: int
    maybe_written: bool = False  # an earlier attempt may have been appended
    is_first_unresolved: bool = True  # all earlier batches of the partition with a sequence have ended
    successor_acked: bool = False  # a later batch of the partition is in the log
    is_behind_gap: bool = False  # an earlier batch has ended unacknowledged, so the partition must take another epoch
    repeats_offset: bool = False
    """The response repeats that of an earlier batch: its offset and time, on the same connection."""
    max_timestamp: int = -1  # latest timestamp of the records, ms


class Complete(NamedTuple):
    """The batch is in the log."""

    base_offset: int  # -1 if the broker no longer knew it
    log_append_time: int = -1
    log_start_offset: int = -1


class Retry(NamedTuple):
    """Send the batch again."""

    maybe_written: bool  # this attempt may have been appended
    refresh_metadata: bool = False
    suspects_topic: bool = False  # what is known of the topic may be of another one of its name
    is_soon: bool = False  # the broker will be ready in a moment
    is_consequence: bool = False  # it was refused because an earlier batch was: it waits for that batch alone
    changes_epoch: bool = False  # the partition must take a new epoch first
    loses_producer_id: bool = False  # the producer must take a new id first


class Split(NamedTuple):
    """The batch is too large: send its halves."""


class Refuse(NamedTuple):
    """Some records were refused; the others may go on without them."""

    code: int
    records: tuple[tuple[int, str | None], ...]  # (index in the batch, the broker's message), ascending


class Fail(NamedTuple):
    """The batch ends here."""

    outcome: Outcome
    code: int
    reason: str
    is_fatal: bool = False  # nothing that this producer sends later can succeed
    loses_producer_id: bool = False
    record_index: int | None = None  # of the first record that the broker named, in the batch


ProduceOutcome = Complete | Retry | Split | Refuse | Fail


def decide(  # noqa: PLR0911  # one return for each kind of response
    response: PartitionResponse | None, facts: BatchFacts, policy: Policy
) -> ProduceOutcome:
    """Decide the outcome of a batch; `response` is None if the broker left its partition out."""
    if response is None or response.base_offset < NO_OFFSET:
        return _unanswered(facts, policy, "the broker's answer does not say what became of the batch")
    if not response.error_code:
        return _written(response, facts)
    row = ErrorCode.of(response.error_code)
    if row is None:
        return Fail(Outcome.UNKNOWN, response.error_code, ErrorCode.in_words(response.error_code))
    # "Not written" is true of this attempt alone: an earlier one may still be in the log. To forget that is to tell the
    # application NOT_WRITTEN, and it sends a duplicate.
    ambiguous = not (row.not_written and (response.base_offset == NO_OFFSET or policy.acks == 1))
    if row.sequence:
        return _sequence_error(row, response, facts, policy=policy)
    outcome = Outcome.UNKNOWN if ambiguous or facts.maybe_written else Outcome.NOT_WRITTEN
    if row.split or row.per_record:
        return _too_large_or_refused(row, response, facts, outcome=outcome, may_leave_out=not policy.is_transactional)
    if _may_retry(row, facts, policy):
        return Retry(
            maybe_written=ambiguous,
            refresh_metadata=row.refresh_metadata,
            suspects_topic=row in _OF_ANOTHER_TOPIC,
            is_soon=row is ErrorCode.CONCURRENT_TRANSACTIONS,
        )
    # Without idempotence no identity is lost: each record is refused for itself.
    is_fatal = (row.fatal and policy.is_idempotent) or (
        row is ErrorCode.INVALID_PRODUCER_ID_MAPPING and policy.is_transactional
    )
    return Fail(outcome, int(row), _reason(row, response), is_fatal=is_fatal)


def decide_lost(facts: BatchFacts, policy: Policy) -> ProduceOutcome:
    """Decide the outcome of a batch whose connection was lost before the response came, or the bytes left (acks=0)."""
    return _unanswered(facts, policy, "the connection was lost before the broker's answer came")


def _unanswered(facts: BatchFacts, policy: Policy, reason: str) -> ProduceOutcome:
    if facts.attempts <= policy.retries and policy.acks != 0:
        return Retry(maybe_written=True, refresh_metadata=True)
    return Fail(Outcome.UNKNOWN, int(ErrorCode.NETWORK_EXCEPTION), reason)


def _written(response: PartitionResponse, facts: BatchFacts) -> ProduceOutcome:
    if facts.repeats_offset and not facts.maybe_written:
        return Fail(
            Outcome.UNKNOWN,
            int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
            "the broker took the batch for a copy of an earlier one: its producer id is used twice",
        )
    # For a copy brokers return the batch's own latest timestamp as the log append time.
    is_echo = facts.maybe_written and response.log_append_time == facts.max_timestamp
    return Complete(response.base_offset, -1 if is_echo else response.log_append_time, response.log_start_offset)


def _sequence_error(
    row: ErrorCode, response: PartitionResponse, facts: BatchFacts, *, policy: Policy
) -> ProduceOutcome:
    may_retry = facts.attempts <= policy.retries
    if row is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        if facts.maybe_written:
            return Complete(NO_OFFSET, response.log_append_time, response.log_start_offset)
        return Fail(Outcome.UNKNOWN, int(row), _reason(row, response))
    maybe_written = facts.maybe_written or response.base_offset != NO_OFFSET
    is_out_of_order = row is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if is_out_of_order and not facts.is_first_unresolved:
        # No pause and no attempt counted: behind every tenth record too large, half of the valid ones expired
        # otherwise.
        return Retry(maybe_written=maybe_written, is_consequence=True)
    loses_producer_id = row is ErrorCode.UNKNOWN_PRODUCER_ID
    cannot_restamp = maybe_written or facts.successor_acked or policy.is_transactional
    is_consequence = is_out_of_order and facts.is_behind_gap
    if row is ErrorCode.INVALID_PRODUCER_EPOCH or cannot_restamp or not (may_retry or is_consequence):
        outcome = Outcome.UNKNOWN if maybe_written else Outcome.NOT_WRITTEN
        return Fail(outcome, int(row), _reason(row, response), loses_producer_id=loses_producer_id)
    return Retry(
        maybe_written=False, changes_epoch=True, loses_producer_id=loses_producer_id, is_consequence=is_consequence
    )


def _too_large_or_refused(
    row: ErrorCode, response: PartitionResponse, facts: BatchFacts, *, outcome: Outcome, may_leave_out: bool
) -> ProduceOutcome:
    is_divisible = facts.records > 1 and outcome is Outcome.NOT_WRITTEN and not facts.successor_acked
    if is_divisible and row.split:
        return Split()
    refused = tuple(sorted(dict(response.record_errors).items()))
    if may_leave_out and is_divisible and refused and refused[0][0] >= 0 and refused[-1][0] < facts.records:
        return Refuse(int(row), refused)
    if not refused:
        return Fail(outcome, int(row), _reason(row, response))
    index, message = refused[0]  # the record's message says more than the batch's
    reason = f"{row.name}: {message}" if message else _reason(row, response)
    return Fail(outcome, int(row), reason, record_index=index)


def _may_retry(row: ErrorCode, facts: BatchFacts, policy: Policy) -> bool:
    if row is ErrorCode.CONCURRENT_TRANSACTIONS and policy.is_transactional:
        return True  # beyond `retries` too: waiting for markers is no failure
    if facts.attempts > policy.retries:
        return False
    if row.few_retries:
        return facts.attempts <= FEW_RETRIES
    return row.retriable or (row.idempotent_retry and policy.is_idempotent)


def _reason(row: ErrorCode, response: PartitionResponse) -> str:
    return f"{row.name}: {response.error_message or row.meaning}"
