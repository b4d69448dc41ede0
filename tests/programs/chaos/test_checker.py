"""The checker finds each kind of damage, and nothing where there is none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.chaos.checker.history_file import Kind
from tests.programs.chaos.checker.log_dump import Finding
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
    assert set(foreign) <= {"tests.programs.checks"}


@pytest.mark.parametrize("module", ["cell_check", "read_log", "__main__"])
def test_running_checker_has_not_loaded_the_producer(module: str) -> None:
    checker = f"tests.programs.chaos.checker.{module}"
    program = f"import sys, {checker}; print([n for n in sys.modules if n.startswith('aioproducer')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ran.stdout.strip() == "[]"


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
    cell._next[CLIENT] = 5  # noqa: SLF001 - damage
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
