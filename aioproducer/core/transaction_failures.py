"""What follows from a refusal that is no reason to ask again. Pure: nowhere else is that decided.

Source: the TxnRequestHandlers of TransactionManager in Apache Kafka; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from aioproducer.core.transaction_errors import FENCED_CODES, FORGOTTEN_CODES
from aioproducer.core.transaction_outcome import Verdict
from aioproducer.core.transaction_states import TransactionState
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    CoordinatorType,
)

if TYPE_CHECKING:
    from aioproducer.core.open_transaction import OpenTransaction
    from aioproducer.core.transaction_requests import TransactionRequest

_ADDS: Final = frozenset((ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN))
_LACKS_A_RIGHT: Final = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED))
_TAKING: Final = frozenset((TransactionState.IN_TRANSACTION, TransactionState.COMMITTING))


class Consequence(Enum):
    """What is to be done."""

    GO_ON = auto()
    """Nothing: it was the end of what a late copy had begun, and InitProducerId decides."""
    LOOK = auto()
    """Have the transaction described: another producer has the identity, or the coordinator has aborted it itself."""
    RENEW = auto()
    """Have InitProducerId decide whether the identity can be had again; the transaction must be aborted."""
    ABORT = auto()
    """The transaction must be aborted."""
    FAIL = auto()
    """Nothing can succeed any more."""


def consequence_of(
    request: TransactionRequest,
    verdict: Verdict,
    code: int,
    *,
    state: TransactionState,
    transaction: OpenTransaction,
    is_v2: bool,
) -> Consequence:
    """Say what a refusal means for a transaction and its producer.

    Args:
        request: what was asked.
        verdict: on its answer, none of those that have it asked again.
        code: the one that counts, from the wire.
        state: of the producer.
        transaction: the open one.
        is_v2: of the transaction.
    """
    is_end, is_abort = request.api is END_TXN, state is TransactionState.ABORTING
    if is_end and state is TransactionState.INITIALIZING and code not in FORGOTTEN_CODES:
        return Consequence.GO_ON
    if is_end and is_v2 and code in FENCED_CODES:
        if not is_abort:
            return Consequence.LOOK
        # A coordinator that is being shut down may take an abort for a copy of the last end, and compare epochs so.
        if not (transaction.is_commit_sent or transaction.is_outdated):
            return Consequence.RENEW
    elif verdict is Verdict.RENEW and not transaction.commits_in_doubt:  # no identity tells whether that was committed
        return Consequence.RENEW
    is_about_id = request.api is FIND_COORDINATOR and request.coordinator.kind is CoordinatorType.TRANSACTION
    is_abortable = (
        verdict is Verdict.ABORTABLE
        and not (is_end and transaction.is_broken_promise(code, is_v2=is_v2, is_abort=is_abort))
        and not (is_about_id and (state not in _TAKING or transaction.commits_in_doubt))  # no abort now
    )
    return Consequence.ABORT if is_abortable else Consequence.FAIL


def is_refused_unseen(request: TransactionRequest, code: int) -> bool:
    """Tell whether a request was refused for a missing right before it changed what the coordinator knows.

    Partitions are added all or none. Offsets are not committed so: those of other topics may have been.

    Args:
        request: what was asked.
        code: from the wire, the one that counts.
    """
    return request.api in _ADDS and code in _LACKS_A_RIGHT
