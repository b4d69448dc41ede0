"""Errors of calls that need an open transaction, or one without an error, where there is none.

Calls that meet an end of their own transaction are refused where they wait for it (`commit_abort.py`, `waiting.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer._transactions.states import MAY_STILL_COMMIT, TransactionState
from aioproducer.errors import (
    IllegalStateError,
    NoTransactionError,
)

if TYPE_CHECKING:
    from aioproducer._transactions.manager import TransactionManager


_STATE: Final = TransactionState
_IS_PREPARED: Final = "the transaction is prepared: it takes nothing more, commit or abort it"
_HAS_BEGUN: Final = MAY_STILL_COMMIT | {_STATE.PREPARED, _STATE.ABORTING, _STATE.ABORTABLE_ERROR}


class TransactionStateChecks:
    """Raises if a call is not allowed now."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager

    @property
    def is_open(self) -> bool:
        return self._manager.state in _HAS_BEGUN

    @property
    def is_taking(self) -> bool:
        """Whether the transaction takes records and offsets."""
        return self._manager.state is _STATE.IN_TRANSACTION

    def check_taking(self) -> None:
        if not self.is_taking:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the error of a call that needs an open transaction."""
        self.raise_fatal()
        self.raise_abortable()
        if self._manager.state is _STATE.PREPARED:
            raise NoTransactionError(_IS_PREPARED)
        if self.is_open:
            raise NoTransactionError("the transaction is ending: it takes nothing more")
        text = "no transaction is open: `async with producer.transaction() as txn`, or await begin_transaction() first"
        raise NoTransactionError(text)

    @property
    def refusal(self) -> str:
        """Why an open transaction refuses all records, until a call ends it; empty if it does not."""
        if self._manager.state is _STATE.ABORTABLE_ERROR:
            return f"the transaction has failed and takes nothing more: abort it ({self._manager.error})"
        return _IS_PREPARED if self._manager.state is _STATE.PREPARED else ""

    def check_open(self, action: str) -> None:
        if not self.is_open:
            raise IllegalStateError(f"there is nothing to {action}: no transaction is open")

    def raise_fatal(self) -> None:
        if self._manager.state is _STATE.FATAL_ERROR and self._manager.error is not None:
            raise self._manager.error.fresh()

    def raise_abortable(self) -> None:
        if self._manager.state is _STATE.ABORTABLE_ERROR and self._manager.error is not None:
            raise self._manager.error.fresh()
