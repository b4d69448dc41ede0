"""What an installation shows while it downloads and compiles for minutes."""

import subprocess
import sys
from pathlib import Path

import pytest

SHOW = Path(__file__).parent.parent / ".ci" / "show_progress.py"

SAID = """Using pip 25.0
Collecting pyarrow>=19
  Downloading pyarrow-25.0-cp313.whl (40.1 MB)
  Preparing editable metadata (pyproject.toml): started
  [1/2] Cythonizing aioproducer/_native/append.pyx
  Preparing editable metadata (pyproject.toml): finished with status 'done'
  Building editable for aioproducer (pyproject.toml): started
building 'aioproducer._native.append' extension
building 'aioproducer._native.delivery' extension
gcc -Wall -O3 -g0 -c append.c -o append.o
gcc -shared append.o -o build/lib/aioproducer/_native/append.cpython-313-x86_64-linux-gnu.so
building 'aioproducer._native.memory' extension
"""


def shown(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, SHOW, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_each_step_of_an_installation_is_one_line() -> None:
    ended = shown(f"print({SAID!r})")

    steps = [line.partition(" s  ")[2] for line in ended.stdout.splitlines()]
    assert (ended.returncode, ended.stderr) == (0, "")
    assert steps == [
        "Collecting pyarrow>=19",
        "Downloading pyarrow-25.0-cp313.whl (40.1 MB)",
        "Preparing editable metadata",
        "Cythonizing aioproducer/_native/append.pyx",
        "Building editable for aioproducer",
        "compiling append; modules done: 0",
        "compiling append, delivery; modules done: 0",
        "compiling delivery, memory; modules done: 1",
    ]


def test_failed_installation_shows_all_its_output() -> None:
    ended = shown(f"print({SAID!r}); raise SystemExit(3)")

    assert ended.returncode == 3
    assert ended.stderr == SAID + "\n\n"


@pytest.mark.slow
@pytest.mark.timing
def test_silent_step_is_told_again() -> None:
    """The compiler takes half a minute for a module, and says nothing."""
    waiting = "import sys; print(\"building 'a.memory' extension\", flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, SHOW, sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = [process.stdout.readline().partition(" s  ")[2] for _ in range(2)]
        process.stdin.close()

    assert lines == ["compiling memory; modules done: 0\n"] * 2
