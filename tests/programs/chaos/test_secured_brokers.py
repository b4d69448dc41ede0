"""Secrets of the secured cells."""

from pathlib import Path

from tests.programs.chaos.secured_brokers import PASSWORD, files_with_the_password


def test_file_that_shows_the_password_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "brokers").mkdir()
    (tmp_path / "events.jsonl").write_bytes(b"{}")
    (tmp_path / "printed-short.log").write_bytes(b"\xff sasl_password=" + PASSWORD.encode())

    assert files_with_the_password(tmp_path) == ["printed-short.log shows the password"]
