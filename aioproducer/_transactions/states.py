"""States of a transactional producer, as one table and a diagram of it; the name of a prepared transaction.

Only `TransactionManager` assigns a state, and it checks this table. Every state may change to FATAL_ERROR, which is
final: a newer producer has the transactional id, or a permission is missing. ABORTABLE_ERROR ends only one
transaction.

The diagram in docs/explanation/transactions.md is what `mermaid` returns.

Source: TransactionManager.State in Apache Kafka (KIP-98, KIP-360, KIP-890, KIP-1050).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    """State of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    """The producer has no identity yet."""
    INITIALIZING = "initializing"
    """An identity, or its next epoch, is being requested; transactions wait."""
    READY = "ready"
    """A transaction may begin."""
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    """No more records are accepted; EndTxn is sent after those accepted have ended."""
    PREPARING = "preparing"
    """No more records are accepted; the transaction is prepared after those accepted have ended."""
    PREPARED = "prepared"
    """All is acknowledged, and only a call of the user ends the transaction: also of another process (KIP-939)."""
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    """The transaction cannot be committed: abort it, and continue."""
    FATAL_ERROR = "fatal error"
    """Nothing can succeed any more."""

    __hash__ = object.__hash__  # Enum's own is Python code


FIRST_V2: Final = 2


_STATE: Final = TransactionState

MAY_STILL_COMMIT: Final = frozenset((_STATE.IN_TRANSACTION, _STATE.COMMITTING, _STATE.PREPARING))

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _STATE.UNINITIALIZED: frozenset({_STATE.INITIALIZING, _STATE.FATAL_ERROR}),
    _STATE.INITIALIZING: frozenset({_STATE.READY, _STATE.FATAL_ERROR}),
    _STATE.READY: frozenset({_STATE.IN_TRANSACTION, _STATE.INITIALIZING, _STATE.FATAL_ERROR}),
    _STATE.IN_TRANSACTION: frozenset(
        {_STATE.COMMITTING, _STATE.PREPARING, _STATE.ABORTING, _STATE.ABORTABLE_ERROR, _STATE.FATAL_ERROR}
    ),
    _STATE.COMMITTING: frozenset(
        {_STATE.READY, _STATE.INITIALIZING, _STATE.ABORTING, _STATE.ABORTABLE_ERROR, _STATE.FATAL_ERROR}
    ),
    _STATE.PREPARING: frozenset({_STATE.PREPARED, _STATE.ABORTING, _STATE.ABORTABLE_ERROR, _STATE.FATAL_ERROR}),
    _STATE.PREPARED: frozenset({_STATE.COMMITTING, _STATE.ABORTING, _STATE.FATAL_ERROR}),
    _STATE.ABORTING: frozenset({_STATE.READY, _STATE.INITIALIZING, _STATE.FATAL_ERROR}),
    _STATE.ABORTABLE_ERROR: frozenset({_STATE.ABORTING, _STATE.FATAL_ERROR}),
    _STATE.FATAL_ERROR: frozenset(),
}

_WHY: Final[Mapping[tuple[TransactionState, TransactionState], str]] = {
    (_STATE.UNINITIALIZED, _STATE.INITIALIZING): "start",
    (_STATE.INITIALIZING, _STATE.READY): "InitProducerId answered",
    (_STATE.READY, _STATE.IN_TRANSACTION): "begin",
    (_STATE.READY, _STATE.INITIALIZING): "the protocol was upgraded, or the cluster is another one",
    (_STATE.IN_TRANSACTION, _STATE.COMMITTING): "commit",
    (_STATE.IN_TRANSACTION, _STATE.PREPARING): "prepare",
    (_STATE.IN_TRANSACTION, _STATE.ABORTING): "abort",
    (_STATE.IN_TRANSACTION, _STATE.ABORTABLE_ERROR): "a record or offset failed",
    (_STATE.COMMITTING, _STATE.READY): "EndTxn answered",
    (_STATE.COMMITTING, _STATE.INITIALIZING): "EndTxn answered, a late copy is possible",
    (_STATE.COMMITTING, _STATE.ABORTING): "abort before EndTxn was sent",
    (_STATE.COMMITTING, _STATE.ABORTABLE_ERROR): "a record or offset failed, or the transaction timed out",
    (_STATE.PREPARING, _STATE.PREPARED): "every record and offset acknowledged",
    (_STATE.PREPARING, _STATE.ABORTING): "abort",
    (_STATE.PREPARING, _STATE.ABORTABLE_ERROR): "a record or offset failed",
    (_STATE.PREPARED, _STATE.COMMITTING): "commit",
    (_STATE.PREPARED, _STATE.ABORTING): "abort",
    (_STATE.ABORTING, _STATE.READY): "EndTxn answered",
    (_STATE.ABORTING, _STATE.INITIALIZING): "EndTxn answered, a late copy or a gap is possible",
    (_STATE.ABORTABLE_ERROR, _STATE.ABORTING): "abort",
}


def mermaid() -> str:
    """Return the table as a diagram."""
    moves = [
        f"    {_name(state)} --> {_name(following)}: {_WHY[state, following]}"
        for state in TransactionState
        for following in TransactionState
        if following in TRANSITIONS[state] and following is not TransactionState.FATAL_ERROR
    ]
    start = f"    [*] --> {_name(TransactionState.UNINITIALIZED)}"
    end = f"    {_name(TransactionState.FATAL_ERROR)} --> [*]: reached from every state"
    return "\n".join(["stateDiagram-v2", start, *moves, end])


def _name(state: TransactionState) -> str:
    return state.name
