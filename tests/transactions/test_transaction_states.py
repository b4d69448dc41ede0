"""The table of states: every pair is allowed or not, and the diagram shows what is."""

from itertools import product
from pathlib import Path

import pytest

from aioproducer._transactions.states import TRANSITIONS, TransactionState, mermaid

(
    UNINITIALIZED,
    INITIALIZING,
    READY,
    IN_TRANSACTION,
    COMMITTING,
    PREPARING,
    PREPARED,
    ABORTING,
    ABORTABLE_ERROR,
    FATAL_ERROR,
) = TransactionState

ALLOWED = {
    (UNINITIALIZED, INITIALIZING),
    (INITIALIZING, READY),
    (READY, IN_TRANSACTION),
    (READY, INITIALIZING),
    (IN_TRANSACTION, COMMITTING),
    (IN_TRANSACTION, PREPARING),
    (IN_TRANSACTION, ABORTING),
    (IN_TRANSACTION, ABORTABLE_ERROR),
    (COMMITTING, READY),
    (COMMITTING, INITIALIZING),
    (COMMITTING, ABORTING),
    (COMMITTING, ABORTABLE_ERROR),
    (PREPARING, PREPARED),
    (PREPARING, ABORTING),
    (PREPARING, ABORTABLE_ERROR),
    (PREPARED, COMMITTING),
    (PREPARED, ABORTING),
    (ABORTING, READY),
    (ABORTING, INITIALIZING),
    (ABORTABLE_ERROR, ABORTING),
    *((state, FATAL_ERROR) for state in TransactionState if state is not FATAL_ERROR),
}


@pytest.mark.parametrize("before, after", [*product(TransactionState, repeat=2)], ids=lambda state: state.name)
def test_move_is_allowed_or_not(before: TransactionState, after: TransactionState) -> None:
    """All 100 pairs."""
    assert (after in TRANSITIONS[before]) is ((before, after) in ALLOWED)


def test_a_transaction_that_has_failed_is_never_committed() -> None:
    """No way leads from the error to the next transaction but through an abort."""
    assert TRANSITIONS[ABORTABLE_ERROR] == {ABORTING, FATAL_ERROR}


def test_diagram_shows_every_move_with_its_reason() -> None:
    """One line each; the fall to the fatal error is said once."""
    lines = mermaid().splitlines()

    shown = {line.strip().partition(":")[0] for line in lines if "-->" in line and "[*]" not in line}
    assert shown == {f"{before.name} --> {after.name}" for before, after in ALLOWED if after is not FATAL_ERROR}
    assert lines[0] == "stateDiagram-v2"


def test_diagram_of_the_docs_is_current() -> None:
    """Else: print `mermaid()` into the page."""
    page = Path(__file__).parents[2] / "docs" / "explanation" / "transactions.md"

    assert f"```mermaid\n{mermaid()}\n```" in page.read_text("utf-8")
