"""The checker of transactions finds what it is there to find."""

from tests.programs.chaos.checker.transaction_check import (
    CommittedRecord,
    check_balances,
    check_copies,
    check_transactions,
)
from tests.programs.chaos.checker.verdict import Verdict

ENDS: dict[tuple[str, int], str | None] = {("a", 1): "committed", ("a", 2): "aborted", ("a", 3): None}


def checked(*found: tuple[str, int, int]) -> list[str]:
    """Violations, of records by life, number and index; three a transaction, all in one partition under one id."""
    verdict = Verdict()
    records = [CommittedRecord(0, "id", *record) for record in found]
    check_transactions(records, ENDS, records=3, verdict=verdict)
    return sorted(verdict.violations.elements())


def whole(life: str, number: int) -> list[tuple[str, int, int]]:
    return [(life, number, index) for index in range(3)]


def test_what_was_committed_is_there_and_nothing_else() -> None:
    assert checked(*whole("a", 1)) == []
    assert checked(*whole("a", 1), *whole("a", 3)) == []


def test_torn_transaction_is_found() -> None:
    assert checked(*whole("a", 1)[:2]) == ["ATOMIC"]
    assert checked(*whole("a", 1), *whole("a", 3)[1:]) == ["ATOMIC"]


def test_doubled_record_is_found() -> None:
    assert checked(*whole("a", 1), ("a", 1, 0)) == ["ATOMIC"]


def test_lost_aborted_and_unknown_transactions_are_found() -> None:
    assert checked() == ["ATOMIC"]
    assert checked(*whole("a", 1), *whole("a", 2)) == ["ATOMIC"]
    assert checked(*whole("a", 1), *whole("a", 9)) == ["ATOMIC"]


def test_life_that_comes_back_is_found() -> None:
    """The producer writes after its successor has: it was fenced too late."""
    verdict = Verdict()
    ends: dict[tuple[str, int], str | None] = {("a", 1): "committed", ("b", 1): "committed", ("a", 2): "committed"}
    lives = [*whole("a", 1), *whole("b", 1), *whole("a", 2)]

    check_transactions([CommittedRecord(0, "id", *life) for life in lives], ends, records=3, verdict=verdict)

    assert set(verdict.violations) == {"FENCED"}


def test_copies_and_offsets_must_agree() -> None:
    verdicts = []
    for copies, committed in [
        ({0: 1, 1: 1, 2: 1}, [2, 1]),
        ({0: 1}, [1, 0]),
        ({0: 1, 1: 1}, [2, 1]),
        ({0: 1, 1: 2, 2: 1}, [2, 1]),
        ({0: 1, 1: 1, 2: 1, 7: 1}, [2, 1]),
        ({0: 1, 1: 1, 2: 1}, [1, 1]),
    ]:
        verdict = Verdict()
        check_copies(3, copies, committed, verdict=verdict)
        verdicts.append(verdict.violations["OFFSETS"])

    assert verdicts == [0, 0, 1, 1, 1, 1]


def test_money_that_is_made_or_destroyed_is_found() -> None:
    """The last balance of each account counts, or its first one if there is none."""
    told: list[list[tuple[int, int]]] = [[], [(0, 7), (1, 13)], [(0, 7), (1, 13), (0, 10), (2, 7)], [(0, 7)]]
    verdicts = []
    for balances in told:
        verdict = Verdict()
        check_balances(balances, 3, 10, verdict=verdict)
        verdicts.append(verdict.violations["ATOMIC"])

    assert verdicts == [0, 0, 0, 1]
