"""Sessions of transactions are read back and add up; files of secured cells do not show the password."""

import importlib.util
from pathlib import Path

import pytest

from tests.programs.chaos.cell import PASSWORD, files_with_the_password
from tests.programs.chaos.transacting.life import Line, TransactionHistory, What, read_lines
from tests.programs.chaos.transacting.session import ALL_IDS, IDS
from tests.programs.chaos.transactions import by_release, faults_told, table


def test_file_that_shows_the_password_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "brokers").mkdir()
    (tmp_path / "events.jsonl").write_bytes(b"{}")
    (tmp_path / "printed-short.log").write_bytes(b"\xff sasl_password=" + PASSWORD.encode())

    assert files_with_the_password(tmp_path) == ["printed-short.log shows the password"]


def told(folder: Path) -> list[tuple[str, int, str]]:
    return [(line.life, line.number, line.what) for line in read_lines(folder)]


@pytest.mark.parametrize("half", [b'["id", "a", 2, "comm', b'["id", "a", 2, "begin", 17', b""])
def test_half_a_line_of_a_killed_process_is_skipped(tmp_path: Path, half: bytes) -> None:
    file = tmp_path / "transactions-p.jsonl"
    TransactionHistory(file).write("id", "a", 1, what=What.BEGIN)
    with file.open("ab") as torn:
        torn.write(half)
    assert told(tmp_path) == [("a", 1, "begin")]

    TransactionHistory(file).write("id", "b", 1, what=What.COMMITTED)

    assert told(tmp_path) == [("a", 1, "begin"), ("b", 1, "committed")]


def test_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    history = TransactionHistory(tmp_path / "transactions-p.jsonl")

    history.write("id", "a", 1, what=What.BEGIN)

    (line,) = read_lines(tmp_path)
    assert line == Line("id", "a", 1, "begin", line.time_us)


def test_processes_can_be_started() -> None:
    for module in ("tests.programs.chaos.transacting.__main__", "tests.integrations.worker_program"):
        assert importlib.util.find_spec(module) is not None
    ids = [each for process in IDS.values() for each in process]
    assert {each for each in ids if ids.count(each) > 1} == {"rivals"}
    assert set(ids) < set(ALL_IDS)


def outcome(release: str, committed: int, **violations: int) -> dict[str, object]:
    return {
        "release": release,
        "seconds": 90,
        "transactions": {"committed": committed, "aborted": 3, "killed": 1, "visible": committed + 1},
        "transfers": {"committed": 2, "unknown": 1, "visible": 2},
        "copies": 5,
        "faults": {"kill_two": 2},
        "violations": violations,
        "problems": [],
    }


def test_sessions_add_up() -> None:
    """Transactions of all kinds, transfers among them, by release and in total."""
    totals = by_release(iter([outcome("3.9.1", 1_000), outcome("4.4.0", 10), outcome("4.4.0", 20)]))

    assert totals["all"].is_clean
    assert totals["all"].transactions == 1_030 + 3 * (3 + 1 + 2 + 1)
    assert "| transactions | 1,007 | 44 | 1,051 |" in list(table(totals))
    assert faults_told(totals["4.4.0"]) == "4 kill_two"


def test_nothing_is_clean_that_did_not_run_or_was_violated() -> None:
    failed = {"release": "4.4.0", "seconds": 1, "faults": {}, "violations": {}, "problems": ["NotHealedError: late"]}

    assert not by_release(iter([]))["all"].is_clean
    assert not by_release(iter([outcome("4.4.0", 10, ATOMIC=1)]))["all"].is_clean
    assert not by_release(iter([failed]))["all"].is_clean
