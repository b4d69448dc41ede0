"""Failures that a plan allows: a record that ended before its deadline says why, and the plan must have a cause for it.

The checker of logs asks whether what callers were told is true. A producer that gave up at the first trouble would
tell the truth, too; and one that never calls back tells nothing. That is looked at here.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aioproducer import KafkaError
from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._protocol.error_codes import ErrorCode
from tests.programs.simulation.faults import RETRIABLE
from tests.programs.simulation.history import End, Operation, Violation
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.transaction_checker import TransactionOperation

SHARED_DEADLINE: Final = 0.1
"""Share of the delivery timeout: a batch ends with its oldest record, and takes no record called later than that."""

RECOVERY_S: Final = 5.0
"""Seconds after healing, beside the request timeout: pauses before connecting, asking and sending again."""

TICK_S: Final = 0.002
_UNKNOWN_SERVER_ERROR: Final = -1
_FEW_RETRIES: Final = frozenset((2,))
_PATIENT_CODES: Final = frozenset(RETRIABLE) - _FEW_RETRIES
_TOO_LARGE: Final = frozenset((10, 18))
_REFUSED: Final = frozenset((32, 87))
_CODE: Final = re.compile(r"-\d+: ([A-Z_]{5,}): ")

ALWAYS_ALLOWED: Final = frozenset(
    (
        "BufferFullError",  # said at the call
        "BufferTimeoutError",  # `max_block_ms` is over
        "MetadataNotReadyError",
        "MetadataTimeoutError",
        "InvalidPartitionError",
        "TypeError",
        "ValueError",
        "SerializationError",
    )
)


def check_ends(operations: Sequence[Operation], plan: Plan, healed_at: float) -> Iterator[Violation]:
    """Look at how records ended; the operations must have been resolved."""
    for operation in operations:
        if operation.end is End.ACKNOWLEDGED and (operation.was_called_back or not operation.expects_callback):
            continue
        is_told = operation.end is End.ACKNOWLEDGED or (
            operation.delivery is not None and operation.end is not End.GIVEN_UP
        )
        if operation.expects_callback and is_told and operation.end is not End.OPEN and not operation.was_called_back:
            yield Violation(
                "ENDS_ONCE",
                f"{operation.record} ({operation.verb}) ended as {operation.end.value} and was not called back",
            )
        is_late = operation.error.startswith("DeliveryTimeoutError") and operation.deadline_s is None
        if is_late and operation.ended_at > _recovered_at(plan, healed_at):
            yield Violation(
                "RECOVERY", f"{operation.record} died long after everything was healed: {operation.error:.300}"
            )
        has_failed = operation.end is End.NOT_WRITTEN or operation.end is End.UNKNOWN
        if has_failed and plan.is_honest and not _is_allowed(operation, plan):
            yield Violation(
                "NEEDLESS_FAILURE",
                f"{operation.record} ended as {operation.end.value} without need: {operation.error:.300}",
            )


def _recovered_at(plan: Plan, healed_at: float) -> float:
    if not plan.is_honest or "topic changes" in plan.enabled:
        return math.inf  # a partition that is gone stays gone
    window = plan.number("max_in_flight_requests_per_connection") if plan.is_idempotent else 1
    burst = 2 * (plan.burst + 1)  # of `send_many`, all to one partition
    at_once = min(plan.records, max(plan.records / plan.partitions, burst))
    round_trip_s = 2 * (plan.latency_s + plan.jitter_s + plan.beat_s) + plan.replication_delay_s
    if plan.number("buffer_memory") < 2 * SMALLEST_CHUNK:  # memory for one batch at a time, of any partition
        window, at_once = 1, min(plan.records, plan.clients * burst)
    if window == 1 and at_once * round_trip_s > plan.number("delivery_timeout_ms") / 1000:
        return math.inf  # one batch at a time, perhaps of one record: the last in line may be too many
    return healed_at + plan.number("request_timeout_ms") / 1000 + RECOVERY_S


def _is_allowed(operation: Operation, plan: Plan) -> bool:
    kind, _, text = operation.error.partition(": ")
    by_kind = {
        "": True,
        "DeliveryTimeoutError": _is_late(operation, plan),
        "ProducerClosedError": plan.family.closes_early,
        "BrokerConnectionError": plan.acks == 0 or plan.gives_up_early,
        "RecordFilteredError": plan.has_interceptor and plan.user_faults,
        **dict.fromkeys(ALWAYS_ALLOWED, True),
    }
    by_text = {
        "withdrawn": operation.was_given_up,
        "deleted and made again": "topic changes" in plan.enabled,
        "a later batch was acknowledged": plan.is_idempotent,
        "the partitioner failed": plan.has_partitioner and plan.user_faults,
    }
    if kind in by_kind:
        return by_kind[kind]
    for words, is_allowed in by_text.items():
        if words in text:
            return is_allowed
    found = _CODE.search(operation.error)
    code = int(ErrorCode[found[1]]) if found and found[1] in ErrorCode.__members__ else None
    return _is_code_allowed(code, operation, plan)


def _is_code_allowed(code: int | None, operation: Operation, plan: Plan) -> bool:
    if code in _PATIENT_CODES:
        return (
            plan.gives_up_early
            or _is_late(operation, plan)
            or (code == _UNKNOWN_SERVER_ERROR and not plan.is_idempotent)
        )
    if code in _TOO_LARGE:
        return may_be_too_large(plan)
    if code in _REFUSED or "refused the record" in operation.error:
        return plan.family.integer_edges or bool({"final code", "codes"} & set(plan.enabled))
    return True


def is_end_by_lies(error: BaseException, plan: Plan) -> bool:
    """Whether a producer may have ended for what brokers seemed to say: changed bytes may say what ends it."""
    return not plan.is_honest and isinstance(error, KafkaError)


def may_be_too_large(plan: Plan) -> bool:
    """Whether brokers may say so of a batch, which is then sent in parts."""
    return plan.max_message_bytes is not None or bool({"split", "final code", "codes"} & set(plan.enabled))


def may_be_taken_apart(plan: Plan) -> bool:
    """Whether batches may be sent in parts: they are too large, or a broker refuses one of their records."""
    return may_be_too_large(plan) or plan.family.integer_edges


def _is_late(operation: Operation, plan: Plan) -> bool:
    """Whether its time was over, or that of the oldest record of its batch."""
    if operation.ended_at < 0:
        return True  # no caller learned when it ended
    if operation.deadline_s is not None and operation.ended_at >= operation.called_at + operation.deadline_s - TICK_S:
        return True
    record_timeout_s = plan.number("delivery_timeout_ms") / 1000
    return operation.ended_at >= operation.called_at + record_timeout_s * (1 - SHARED_DEADLINE) - TICK_S


# NEEDLESS_FAILURE for transactions: where coordinators invent no codes, few answers of a coordinator may fail one.
#
# A transaction that timed out, or that a late copy of a request has ended, is refused in words that say so. Anything
# else that a coordinator says passes, or follows from what this producer has asked unsuccessfully or out of order.

_OVER: Final = frozenset(("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED"))
"""The transaction is over, for the coordinator."""

_STALE: Final = frozenset(("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"))
_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "AddPartitionsToTxn": _OVER | {"INVALID_TXN_STATE"},
    "AddOffsetsToTxn": _OVER | {"INVALID_TXN_STATE"},
    "TxnOffsetCommit": _OVER,
    "EndTxn": _OVER | {"INVALID_TXN_STATE"},
}
_ANSWERED: Final = re.compile(rf"({'|'.join(_ALLOWED)}) of '[^']*': ([A-Z_]+): ")


def check_transaction_failures(operations: Sequence[TransactionOperation], plan: Plan) -> Iterator[Violation]:
    if "codes" in plan.enabled:
        return
    for operation in operations:
        found = _ANSWERED.search(operation.error)
        if found is not None and found[2] not in _ALLOWED[found[1]] and not (operation.is_stale and found[2] in _STALE):
            yield Violation("NEEDLESS_FAILURE", f"without need: {operation}")
