"""Tables of states and of error codes, and the states to which codes lead. No network."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import INIT_PRODUCER_ID, Api, ProducerIdResponse
from aioproducer._protocol.produce import PartitionResponse
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    TXN_OFFSET_COMMIT,
)
from aioproducer._sender.produce_outcome import BatchFacts, Fail, Policy, decide
from aioproducer._transactions.requests import OffsetsToSend
from aioproducer._transactions.states import TRANSITIONS, TransactionState, mermaid
from aioproducer._transactions.verdicts import ErrorAction, fatal_error, verdict_on, worst_of
from aioproducer.errors import BrokerError, KafkaError, Outcome, ProducerFencedError, TransactionAbortableError
from tests.fakes.transaction_scene import OFFSETS, READERS, Scene, State, on_both

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
    51: (SOON, SOON, SOON, SOON, SOON, SOON),  # librdkafka 1.6 and franz-go 1.21 took it for a fatal error
    53: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    55: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, ABORTABLE),
    59: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),
    82: (FATAL, FATAL, ABORTABLE, ABORTABLE, ABORTABLE, FATAL),
    90: (FATAL, FATAL, FATAL, FATAL, FATAL, FATAL),  # librdkafka 1.9 asked for an identity forever
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
    (ABORTABLE_ERROR, ABORTING),  # never to a commit, nor to the next transaction
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


def test_diagram_shows_every_transition() -> None:
    lines = mermaid().splitlines()

    shown = {line.strip().partition(":")[0] for line in lines if "-->" in line and "[*]" not in line}
    assert shown == {f"{before.name} --> {after.name}" for before, after in ALLOWED if after is not FATAL_ERROR}
    assert lines[0] == "stateDiagram-v2"


def test_diagram_of_the_docs_is_current() -> None:
    """Otherwise print `mermaid()` into the page."""
    page = Path(__file__).parents[2] / "docs" / "explanation" / "transactions.md"

    assert f"```mermaid\n{mermaid()}\n```" in page.read_text("utf-8")


# Coordinators that do not know the producer: no answer leads to a new identity for a fenced one

FORGOTTEN: Final = 49, 59
VERSIONS: Final[Mapping[str, int]] = {"TV0": 0, "TV1": 1, "TV2": 2}
ADDS, COMMITS_OFFSETS, ENDS = ("AddPartitionsToTxn", "AddOffsetsToTxn"), ("TxnOffsetCommit",), ("EndTxn",)

# (requests, versions) -> code -> the state that the answer leads to. In Java 4.3 47, 48, 49 and 90 are all fatal. 59 is
# abortable there, but for TxnOffsetCommit, and the EndTxn that follows is refused with 49.
OF_V1: Final = {
    47: ABORTABLE_ERROR,
    48: FATAL_ERROR,
    49: FATAL_ERROR,
    59: FATAL_ERROR,
    90: FATAL_ERROR,
    120: ABORTABLE_ERROR,
}
STATES: Final[Mapping[tuple[tuple[str, ...], tuple[str, ...]], Mapping[int, State]]] = {
    ((*ADDS, *ENDS), ("TV0", "TV1")): OF_V1,
    (COMMITS_OFFSETS, ("TV0", "TV1", "TV2")): {
        **OF_V1,
        25: ABORTABLE_ERROR,  # as which older group coordinators pass 49 on
    },
    (ENDS, ("TV2",)): {
        **OF_V1,
        47: State.COMMITTING,  # described first
        48: ABORTABLE_ERROR,
        90: State.COMMITTING,
    },
}
ROWS: Final = [
    (name, code, version, state)
    for (names, versions), codes in STATES.items()
    for name in names
    for version in versions
    for code, state in codes.items()
]


def at(name: str, version: int) -> Scene:
    if name == "AddPartitionsToTxn":
        scene = Scene(version=version).begun()
        scene.manager.use(scene.partition(), scene.now)
        return scene
    scene = Scene(version=version).begun(0)
    if name == "TxnOffsetCommit":
        scene.send_offsets(OFFSETS, READERS)
    elif name == "AddOffsetsToTxn":
        scene.manager.send_offsets(OffsetsToSend(OFFSETS, READERS))
    else:
        scene.commit()
    return scene


def code_of(error: KafkaError | None) -> int:
    assert isinstance(error, BrokerError)
    return error.code


@pytest.mark.parametrize("name, code, version, state", ROWS)
def test_answer_leads_to_the_state_of_the_table(name: str, code: int, version: str, state: State) -> None:  # noqa: PLR0917
    scene = at(name, VERSIONS[version])

    scene.do(name, code)

    assert scene.manager.state is state
    assert state is not FATAL_ERROR or scene.asked() is None
    if code in FORGOTTEN:  # one error, which names the broker setting behind it
        assert code_of(scene.manager.error) == 49
        assert "transactional.id.expiration.ms" in str(scene.manager.error)


@on_both()
def test_unknown_identity_in_an_abort_is_fatal(version: int) -> None:
    """V2: a leader with a newer epoch answers Produce with 47 without asking the coordinator."""
    scene = Scene(version=version).begun(0)
    scene.manager.fail_transaction(BrokerError("newer", code=47))
    scene.abort()

    scene.do("EndTxn", 49)

    assert scene.is_in(FATAL_ERROR)
    assert code_of(scene.manager.error) == 49


@on_both()
def test_commit_with_a_lost_answer_is_in_doubt_when_id_unknown(version: int) -> None:
    scene = at("EndTxn", version)
    scene.lose()

    scene.do("EndTxn", 49)

    assert (scene.manager.state, scene.manager.is_commit_in_doubt) == (FATAL_ERROR, True)


# What InitProducerId would do


def outdated(version: int) -> Scene:
    """A transaction that is to be ended by a renewal of the identity: a coordinator has answered another epoch."""
    scene = Scene(version=version).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.do("TxnOffsetCommit", 47)
    scene.abort()
    return scene


@on_both()
def test_identity_is_not_renewed_where_the_id_is_unknown(version: int) -> None:
    """InitProducerId would be answered with a new identity."""
    scene = outdated(version)

    scene.do("DescribeTransactions", 105)

    assert (scene.manager.state, scene.asked()) == (FATAL_ERROR, None)
    assert code_of(scene.manager.error) == 49


@on_both()
def test_new_identity_is_not_taken_for_the_old_one(version: int) -> None:
    """The id has expired between the look and the renewal, or the coordinator is too old to be asked."""
    scene = outdated(version)
    scene.do("DescribeTransactions")

    scene.manager.answered(scene.ask(), ProducerIdResponse(0, 0, 88, 0), scene.now)

    assert (scene.manager.state, scene.identity.producer_id) == (FATAL_ERROR, 77)
    assert code_of(scene.manager.error) == 49


@pytest.mark.parametrize("epoch, state", [(32_765, FATAL_ERROR), (32_766, State.READY), (32_767, State.READY)])
def test_another_producer_id_is_taken_when_epochs_run_out(epoch: int, state: State) -> None:
    """A coordinator that knows the identity gives a new id from epoch 32,766 on."""
    scene = Scene(version=0).ready()
    scene.identity.assign(77, epoch)
    scene.begun(0)
    scene.identity.needs_epoch = True
    scene.commit()
    scene.do("EndTxn")

    scene.manager.answered(scene.ask(), ProducerIdResponse(0, 0, 88, 0), scene.now)

    assert scene.manager.state is state


def test_late_copys_transaction_is_not_ended_by_an_unknown_id() -> None:
    scene = Scene(version=0).begun(0)
    scene.send_offsets(OFFSETS, READERS)
    scene.lose()
    scene.do("TxnOffsetCommit")
    scene.commit()
    scene.do("EndTxn")
    scene.described = "Ongoing", (77, 0)
    scene.do("DescribeTransactions")

    scene.do("EndTxn", 49)

    assert (scene.manager.state, scene.asked()) == (FATAL_ERROR, None)


def test_producer_idle_before_an_upgrade_may_be_forgotten() -> None:
    """An upgrade to V2 asks for a new epoch, which a forgotten producer must not get."""
    scene = Scene(version=0).begun(0)
    scene.commit()
    scene.do("EndTxn")

    assert not scene.manager.begin(2)
    scene.do("DescribeTransactions", 105)

    assert scene.is_in(FATAL_ERROR)


@on_both()
def test_cluster_that_is_another_one_does_not_know_the_producer(version: int) -> None:
    """The cluster may be a replica with a successor's commits. Java's next request gets 49, too."""
    scene = Scene(version=version).ready()
    scene.identity.discard(77)

    assert not scene.manager.begin(version)
    scene.do("DescribeTransactions", 105)

    assert (scene.manager.state, scene.asked()) == (FATAL_ERROR, None)
    assert code_of(scene.manager.error) == 49


# Of records


def refused_with(code: int) -> PartitionResponse:
    return PartitionResponse("t", None, 0, code, -1, -1, -1, (), None, -1, -1)


@pytest.mark.parametrize("is_transactional", [True, False])
def test_produce_of_an_unknown_transactional_identity_is_fatal(*, is_transactional: bool) -> None:
    """Without transactions there is no successor that could have been fenced: the record alone fails."""
    policy = Policy(acks=-1, is_idempotent=True, retries=5, is_transactional=is_transactional)

    outcome = decide(refused_with(49), BatchFacts(attempts=1, records=2), policy)

    assert isinstance(outcome, Fail)
    assert (outcome.outcome, outcome.is_fatal) == (Outcome.NOT_WRITTEN, is_transactional)


@pytest.mark.parametrize("code", [45, 47, 48, 59, 120])
@pytest.mark.parametrize("is_transactional", [True, False])
def test_produce_refused_by_a_leader_alone_is_not_fatal(code: int, *, is_transactional: bool) -> None:
    """A leader forgets producers early; the abort that follows asks the coordinator. Idempotent ones are renewed."""
    policy = Policy(acks=-1, is_idempotent=True, retries=5, is_transactional=is_transactional)

    outcome = decide(refused_with(code), BatchFacts(attempts=1, records=2), policy)

    assert not (isinstance(outcome, Fail) and outcome.is_fatal)
    assert not is_transactional or isinstance(outcome, Fail)


@pytest.mark.parametrize("code", FORGOTTEN)
def test_producer_that_fails_by_a_record_says_the_same(code: int) -> None:
    """Produce is answered with 49 when the leader has asked the coordinator."""
    error = fatal_error(BrokerError("t-0: unknown", code=code, outcome=Outcome.NOT_WRITTEN), "billing-1")

    assert code_of(error) == 49
    assert "'billing-1'" in str(error)


@pytest.mark.parametrize("code, kind", [(90, ProducerFencedError), (47, ProducerFencedError), (53, BrokerError)])
def test_other_errors_of_a_producer_stay_what_they_are(code: int, kind: type[KafkaError]) -> None:
    assert type(fatal_error(BrokerError("x", code=code), "billing-1")) is kind


def test_errors_of_other_origin_are_passed_on() -> None:
    unknown, other = BrokerError("x", code=59), TransactionAbortableError("y")

    assert fatal_error(unknown, None) is unknown
    assert fatal_error(other, "billing-1") is other
