"""The check that the README's commands begin with: one line for each thing the machine lacks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parent.parent / ".ci" / "check_machine.py"


def check(**environment: str) -> tuple[int, list[str]]:
    ended = subprocess.run(
        [sys.executable, CHECK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": "", **environment},
    )
    return ended.returncode, ended.stderr.splitlines()


@pytest.fixture
def compiler() -> str:
    return shutil.which("cc") or pytest.skip("no C compiler called cc")


def test_missing_compiler_is_one_line() -> None:
    code, lines = check(CC="no-such-compiler")

    assert code == 1
    assert lines == ["a C compiler is missing: sudo apt-get install -y gcc libc6-dev"]


def test_missing_optional_programs_are_reported_only(compiler: str) -> None:
    """Only the tests that need them are skipped."""
    code, lines = check(PATH="/nonexistent", CC=compiler)

    assert code == 0
    assert [line.partition(" is missing")[0] for line in lines] == ["Java 17", "Maven", "MIT Kerberos", "Chromium"]
    assert all("apt-get install" in line and "are skipped" in line for line in lines)
