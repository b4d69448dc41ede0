"""Tables of states and of error codes."""

from itertools import product
from pathlib import Path

import pytest

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID, Api
from aioproducer._protocol.offset_messages import TXN_OFFSET_COMMIT
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
)
from aioproducer._transactions.states import TRANSITIONS, TransactionState, mermaid
from aioproducer._transactions.verdicts import ErrorAction, verdict_on, worst_of

DONE, SOON, RETRY, REFIND, ABORTABLE, RENEW, FATAL = ErrorAction
APIS = (FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN)
TABLE: dict[int, tuple[ErrorAction, ...]] = {
    -1: (RETRY, RETRY, RETRY, RETRY, RETRY, RETRY),
    0: (DONE, DONE, DONE, DONE, DONE, DONE),
    3: (RETRY, RETRY, RETRY, RETRY, RETRY, RETRY),
    7: (RETRY, RETRY, RETRY, RETRY, REFIND, RETRY),
    12: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    14: (RETRY, RETRY, RETRY, RETRY, RETRY, RETRY),
    15: (RETRY, REFIND, REFIND, REFIND, REFIND, REFIND),
    16: (RETRY, REFIND, REFIND, REFIND, REFIND, REFIND),
    17: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    22: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    24: (ABORTABLE, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    25: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    27: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    28: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    29: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, ABORTABLE),
    30: (ABORTABLE, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, ABORTABLE),
    31: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    35: (RETRY, RETRY, RETRY, RETRY, RETRY, RETRY),
    42: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    47: (FATAL, FATAL, RENEW, RENEW, RENEW, RENEW),
    48: (FATAL, FATAL, FATAL, FATAL, FATAL, ABORTABLE),
    49: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    50: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    51: (SOON, SOON, SOON, SOON, SOON, SOON),
    53: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    55: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, ABORTABLE),
    59: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    82: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    90: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    105: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    113: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    120: (ABORTABLE, RETRY, ABORTABLE, ABORTABLE, ABORTABLE, ABORTABLE),
}
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


@pytest.mark.parametrize("code", TABLE)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_code_has_the_action_in_the_table(api: Api, code: int) -> None:
    """As in Kafka's own producer, except for codes that are better retried."""
    assert verdict_on(api.key, code) is TABLE[code][APIS.index(api)]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_only_zero_is_success(api: Api) -> None:
    verdicts = {code: verdict_on(api.key, code) for code in range(-32_768, 32_768)}

    assert [code for code, verdict in verdicts.items() if verdict is DONE] == [0]


@pytest.mark.parametrize("code", [134, 999, -2, 32_767, -32_768])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_newer_code_ends_transaction_or_producer(api: Api, code: int) -> None:
    """The transaction if it can be aborted, otherwise the producer."""
    expected = ABORTABLE if api in {ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT} else FATAL

    assert ErrorCode.of(code) is None
    assert verdict_on(api.key, code) is expected


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_concurrent_transactions_is_retried_soon(api: Api) -> None:
    """Librdkafka 1.6 and franz-go 1.21 took it for a fatal error."""
    assert verdict_on(api.key, ErrorCode.CONCURRENT_TRANSACTIONS) is SOON


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_fenced_producer_is_never_retried(api: Api) -> None:
    """Librdkafka 1.9 asked for an identity forever."""
    assert verdict_on(api.key, ErrorCode.PRODUCER_FENCED) is FATAL


@pytest.mark.parametrize(
    "codes, expected",
    [
        ([], (DONE, 0)),
        ([0, 0], (DONE, 0)),
        ([0, 3], (RETRY, 3)),
        ([3, 55], (RETRY, 3)),
        ([55, 16, 3], (REFIND, 16)),
        ([29, 55], (ABORTABLE, 29)),
        ([0, 55], (ABORTABLE, 55)),
    ],
)
def test_worst_code_counts(codes: list[int], expected: tuple[ErrorAction, int]) -> None:
    """OPERATION_NOT_ATTEMPTED means that another partition is the reason."""
    assert worst_of(ADD_PARTITIONS_TO_TXN.key, codes) == expected


@pytest.mark.parametrize("before, after", [*product(TransactionState, repeat=2)], ids=lambda state: state.name)
def test_transition_is_allowed_or_not(before: TransactionState, after: TransactionState) -> None:
    """All 100 pairs."""
    assert (after in TRANSITIONS[before]) is ((before, after) in ALLOWED)


def test_failed_transaction_is_never_committed() -> None:
    """Only an abort leads from the error to the next transaction."""
    assert TRANSITIONS[ABORTABLE_ERROR] == {ABORTING, FATAL_ERROR}


def test_diagram_shows_every_transition() -> None:
    lines = mermaid().splitlines()

    shown = {line.strip().partition(":")[0] for line in lines if "-->" in line and "[*]" not in line}
    assert shown == {f"{before.name} --> {after.name}" for before, after in ALLOWED if after is not FATAL_ERROR}
    assert lines[0] == "stateDiagram-v2"


def test_diagram_of_the_docs_is_current() -> None:
    """Otherwise print `mermaid()` into the page."""
    page = Path(__file__).parents[2] / "docs" / "explanation" / "transactions.md"

    assert f"```mermaid\n{mermaid()}\n```" in page.read_text("utf-8")
