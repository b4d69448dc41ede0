"""The checker finds each kind of damage, and nothing where there is none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.chaos.checker.cell_files import Finding, Kind
from tests.programs.chaos.checker.transaction_check import (
    CommittedRecord,
    check_balances,
    check_copies,
    check_transactions,
)
from tests.programs.chaos.checker.verdict import Verdict
from tests.programs.chaos.written_cell import CLIENT, SECOND, SENT_MS, WrittenCell, checks

CHECKER = Path(__file__).parent / "checker"
ROOT = Path(__file__).parents[3]


# Its independence


@pytest.mark.parametrize("path", sorted(CHECKER.glob("*.py")), ids=lambda path: path.name)
def test_checker_imports_nothing_of_the_producer(path: Path) -> None:
    imported = [
        name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    ]

    foreign = [name for name in imported if name.startswith(("aioproducer", "tests.")) and ".checker" not in name]
    assert set(foreign) <= {"tests.programs.invariants"}


@pytest.mark.parametrize("module", ["read_log", "__main__"])
def test_running_checker_has_not_loaded_the_producer(module: str) -> None:
    checker = f"tests.programs.chaos.checker.{module}"
    program = f"import sys, {checker}; print([n for n in sys.modules if n.startswith('aioproducer')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ran.stdout.strip() == "[]"


@pytest.fixture
def cell(tmp_path: Path) -> WrittenCell:
    return WrittenCell(tmp_path)


# Nothing wrong


def test_clean_cell_is_clean(cell: WrittenCell) -> None:
    cell.acknowledged(3)
    cell.acknowledged(3, topic=2)
    cell.failed(cell.invoke(), Kind.NOT_WRITTEN)
    cell.failed(cell.invoke(), Kind.UNKNOWN)
    n = cell.invoke()
    cell.failed(n, Kind.UNKNOWN)
    cell.log(n, 3)

    verdict = cell.check()

    assert verdict.told == []
    assert verdict.figures["acknowledged"] == 6


# Endings


def test_record_that_never_ended(cell: WrittenCell) -> None:
    cell.invoke()

    assert checks(cell) == {"ENDS_ONCE": 1}


def test_record_that_ended_twice(cell: WrittenCell) -> None:
    cell.acknowledged(1)
    cell.failed(0, Kind.UNKNOWN)

    assert checks(cell) == {"ENDS_ONCE": 1}


def test_record_that_lived_too_long(cell: WrittenCell) -> None:
    n = cell.invoke()
    cell.now_us += 37 * SECOND
    cell.failed(n, Kind.NOT_WRITTEN)

    assert checks(cell) == {"ENDS_ONCE": 1}


def test_record_of_a_stopped_process_may_live_longer(cell: WrittenCell) -> None:
    n = cell.invoke()
    lag = [cell.at(1), cell.at(11)]
    cell.now_us += 37 * SECOND
    cell.failed(n, Kind.NOT_WRITTEN)

    assert checks(cell, lags=[lag]) == {}


def test_gap_in_a_history(cell: WrittenCell) -> None:
    cell.next = 5
    cell.invoke()

    assert checks(cell) == {"ENDS_ONCE": 1}


# Losses


def test_acknowledged_record_that_is_not_there(cell: WrittenCell) -> None:
    """With idempotence not even a leader's death explains it."""
    cell.fault("kill_leader", -1, 3, nodes=[1], leaders={"1": {"0": 1}})
    cell.acknowledged(2)
    cell.ok(cell.invoke(), 2)

    assert checks(cell) == {"LOST": 1}


def test_unread_topic_is_found(cell: WrittenCell) -> None:
    del cell._logs[2, 0]  # noqa: SLF001 - damage

    assert checks(cell) == {"LOST": 1}


# Order


def test_acknowledged_records_in_another_order(cell: WrittenCell) -> None:
    first, second = cell.invoke(), cell.invoke()
    cell.ok(second, 0)
    cell.ok(first, 1)
    cell.log(second, 0)
    cell.log(first, 1)

    assert checks(cell) == {"ORDER": 1}


def test_second_copies_are_in_no_order(cell: WrittenCell) -> None:
    """Without idempotence an unanswered batch comes again behind others."""
    cell.acknowledged(2, topic=2)
    cell.log(0, 2, topic=2)

    assert checks(cell) == {}


def test_record_for_any_partition_is_in_order_among_its_like(cell: WrittenCell) -> None:
    anywhere, given, later = cell.invoke(partition=-1), cell.invoke(), cell.invoke(partition=-1)
    for offset, n in enumerate((given, later, anywhere)):
        cell.ok(n, offset)
        cell.log(n, offset)

    assert checks(cell) == {"ORDER": 1}


# Told truly


def test_written_record_reported_as_not_written_is_found(cell: WrittenCell) -> None:
    n = cell.invoke()
    cell.failed(n, Kind.NOT_WRITTEN)
    cell.log(n, 0)

    assert checks(cell) == {"NOT_WRITTEN": 1}


@pytest.mark.parametrize("kind", [Kind.OK, Kind.UNKNOWN])
def test_record_that_is_there_twice(cell: WrittenCell, kind: Kind) -> None:
    n = cell.invoke()
    cell.ok(n, 0) if kind is Kind.OK else cell.failed(n, kind)
    cell.log(n, 0)
    cell.log(n, 1)

    assert checks(cell) == {"DUPLICATE": 1}


# Nothing else


@pytest.mark.parametrize("finding", [Finding.CORRUPT, Finding.MISROUTED])
def test_record_that_is_damaged_or_elsewhere(cell: WrittenCell, finding: Finding) -> None:
    cell.acknowledged(1)
    cell.log(0, 1, finding=finding)

    assert checks(cell) == {"FOREIGN": 1}


@pytest.mark.parametrize("client, n", [(CLIENT, 1), (CLIENT + 1, 0)])
def test_unsent_record_is_found(cell: WrittenCell, client: int, n: int) -> None:
    cell.acknowledged(1)
    cell.log(n, 1, client=client)

    assert checks(cell) == {"FOREIGN": 1}


def test_log_whose_offsets_go_back(cell: WrittenCell) -> None:
    cell.acknowledged(2)
    n = cell.invoke()
    cell.failed(n, Kind.UNKNOWN)
    cell.log(n, 1)

    assert checks(cell) == {"FOREIGN": 1}


def test_log_that_was_not_read_to_its_end(cell: WrittenCell) -> None:
    cell.acknowledged(2)
    cell.covers(1, 0, ends={0: 3})

    assert checks(cell) == {"FOREIGN": 1}


# Reported outcomes are true


def test_record_that_is_at_another_offset(cell: WrittenCell) -> None:
    n = cell.invoke()
    cell.ok(n, 5)
    cell.log(n, 0)

    assert checks(cell) == {"RECORD_METADATA": 1}


def test_record_that_is_in_another_partition(cell: WrittenCell) -> None:
    n = cell.invoke(partition=-1)
    cell.ok(n, 0, partition=1)
    cell.log(n, 0, partition=0)

    assert checks(cell) == {"RECORD_METADATA": 1}


def test_answer_for_a_partition_that_was_not_asked_for(cell: WrittenCell) -> None:
    n = cell.invoke(partition=1)
    cell.ok(n, 0, partition=0)
    cell.log(n, 0, partition=0)

    assert checks(cell) == {"RECORD_METADATA": 1}


@pytest.mark.parametrize("where", ["told", "log"])
def test_timestamp_that_is_not_the_records(cell: WrittenCell, where: str) -> None:
    n = cell.invoke()
    cell.ok(n, 0, timestamp=SENT_MS + (where == "told"))
    cell.log(n, 0, timestamp=SENT_MS + (where == "log"))

    assert checks(cell) == {"RECORD_METADATA": 1}


# Recovery, closing, errors logged


def test_first_acknowledgement_that_comes_late(cell: WrittenCell) -> None:
    cell.lasting = [CLIENT]
    cell.acknowledged(1)
    cell.fault("kill_two", 0, 1, nodes=[1, 2])
    n = cell.invoke()
    cell.now_us += int(16.1 * SECOND)
    cell.ok(n, 1)
    cell.log(n, 1)

    assert checks(cell) == {"RECOVERY": 1}


def test_cell_that_ends_early_is_not_checked_for_recovery(cell: WrittenCell) -> None:
    cell.lasting = [CLIENT]
    cell.acknowledged(1)
    cell.fault("kill_two", 0, 1, nodes=[1, 2])
    cell.sending_ended_us = cell.at(10)

    assert checks(cell) == {}


@pytest.mark.parametrize("lag_s, found", [(0, {"CLOSE": 1}), (2, {})], ids=["it ran", "it did not run"])
def test_close_that_outlasts_its_timeout(cell: WrittenCell, lag_s: int, found: dict[str, int]) -> None:
    close = {"client": CLIENT, "seconds": 7.5, "timeout_s": 5.0, "began_us": 0}

    assert checks(cell, closes=[close], lags=[[SECOND, SECOND + lag_s * SECOND]]) == found


def test_error_that_is_logged_without_a_cause(cell: WrittenCell) -> None:
    assert checks(cell, errors_without_cause=["asyncio: Task was destroyed"]) == {"LOGGED_ERROR": 1}


# Losses that a leader's death explains


def lose_one(cell: WrittenCell, *, epoch_after: int) -> None:
    """Three acknowledged records; in the place of the last stands another, of some leader epoch."""
    cell.acknowledged(2, topic=2)
    cell.ok(cell.invoke(topic=2), 2, topic=2)
    n = cell.invoke(topic=2)
    cell.ok(n, 2, topic=2)
    cell.log(n, 2, topic=2, epoch=epoch_after)


def test_loss_that_the_death_of_its_leader_explains(cell: WrittenCell) -> None:
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    lose_one(cell, epoch_after=1)

    verdict = cell.check()

    assert verdict.told == []
    assert verdict.figures["logs"] == {"one id-0": {}, "two id-0": {"records": 3, "losses_explained": 1}}


def test_loss_at_the_end_of_the_log_is_explained_too(cell: WrittenCell) -> None:
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    cell.acknowledged(2, topic=2)
    cell.ok(cell.invoke(topic=2), 2, topic=2)

    assert checks(cell) == {}


def test_loss_within_one_leader_epoch(cell: WrittenCell) -> None:
    """A leader died, but this record was never written."""
    cell.fault("kill_leader", 0, 3, nodes=[1], leaders={"2": {"0": 1}})
    lose_one(cell, epoch_after=0)

    assert checks(cell) == {"LOST": 1}


@pytest.mark.parametrize(
    "leader, begin_s",
    [(2, 0), (1, -100), (1, 100)],
    ids=["another node died", "it died long before", "it died long after"],
)
def test_loss_that_no_death_explains(cell: WrittenCell, leader: int, begin_s: float) -> None:
    cell.fault("kill_leader", begin_s, begin_s + 3, nodes=[1], leaders={"2": {"0": leader}})
    lose_one(cell, epoch_after=1)

    assert checks(cell) == {"LOST": 1}


@pytest.mark.parametrize("partition, found", [(0, {}), (1, {"LOST": 1})], ids=["its leader", "another partition's"])
def test_loss_when_the_watcher_saw_a_leader_move(cell: WrittenCell, partition: int, found: dict[str, int]) -> None:
    """A starved node loses what it leads without being killed."""
    cell.events.append(
        {"kind": "leaders_moved", "begin_us": cell.at(0), "end_us": cell.at(1), "moved": [[2, partition]]}
    )
    lose_one(cell, epoch_after=1)

    assert checks(cell) == found


# Topics made again


def make_again(cell: WrittenCell) -> None:
    cell.covers(1, 0, acknowledged_until_us=cell.now_us)
    cell.now_us += 10 * SECOND
    cell.covers(1, 1, invoked_from_us=cell.now_us)
    cell.log_of(1, 1)


def test_each_life_holds_its_own(cell: WrittenCell) -> None:
    """A record may be in both: its acknowledgement was lost, and it was sent again to the new topic."""
    cell.acknowledged(2)
    twice = cell.invoke()
    cell.log(twice, 2)
    make_again(cell)
    cell.ok(twice, 0)
    cell.log(twice, 0, life=1)
    n = cell.invoke()
    cell.ok(n, 1)
    cell.log(n, 1, life=1)

    assert checks(cell) == {}


def test_record_acknowledged_during_topic_deletion_may_be_gone(cell: WrittenCell) -> None:
    cell.acknowledged(1)
    n = cell.invoke()
    cell.covers(1, 0, acknowledged_until_us=cell.now_us)
    cell.ok(n, 1)
    cell.now_us += SECOND
    cell.covers(1, 1, invoked_from_us=cell.now_us)
    cell.log_of(1, 1)

    assert checks(cell) == {}


def test_record_that_the_first_life_of_a_topic_lacks(cell: WrittenCell) -> None:
    """The record was acknowledged before the topic was read, and deleted after that."""
    cell.ok(cell.invoke(), 0)
    make_again(cell)

    assert checks(cell) == {"LOST": 1}


def test_record_that_the_second_life_of_a_topic_lacks(cell: WrittenCell) -> None:
    cell.acknowledged(1)
    make_again(cell)
    cell.ok(cell.invoke(), 0)

    assert checks(cell) == {"LOST": 1}


# Transactions

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


@pytest.mark.parametrize(
    "copies, committed, wrong",
    [
        ({0: 1, 1: 1, 2: 1}, [2, 1], 0),
        ({0: 1}, [1, 0], 0),
        ({0: 1, 1: 1}, [2, 1], 1),
        ({0: 1, 1: 2, 2: 1}, [2, 1], 1),
        ({0: 1, 1: 1, 2: 1, 7: 1}, [2, 1], 1),
        ({0: 1, 1: 1, 2: 1}, [1, 1], 1),
    ],
)
def test_copies_and_offsets_must_agree(copies: dict[int, int], committed: list[int], wrong: int) -> None:
    verdict = Verdict()
    check_copies(3, copies, committed, verdict=verdict)

    assert verdict.violations["OFFSETS"] == wrong


@pytest.mark.parametrize(
    "told, wrong",
    [([], 0), ([(0, 7), (1, 13)], 0), ([(0, 7), (1, 13), (0, 10), (2, 7)], 0), ([(0, 7)], 1)],
)
def test_money_that_is_made_or_destroyed_is_found(told: list[tuple[int, int]], wrong: int) -> None:
    """The last balance of each account counts, or its first one if there is none."""
    verdict = Verdict()
    check_balances(told, 3, 10, verdict=verdict)

    assert verdict.violations["ATOMIC"] == wrong
