"""The entry point: finds the subcommand, and says which extra is missing."""

import subprocess
import sys

import pytest

import aioproducer

WITHOUT = "import sys; sys.modules[{library!r}] = None; from aioproducer.cli.main import app; app()"


def run_without(library: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as if a library were not installed."""
    program = WITHOUT.format(library=library)
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library, arguments", [("typer", ["broker"]), ("typer", ["--help"]), ("aiokafka", ["tail"])])
def test_missing_extra_is_one_line(library: str, arguments: list[str]) -> None:
    """With the command that installs it, and exit code 2."""
    ended = run_without(library, *arguments)

    said = f"aioproducer: {library} is not installed; run: pip install 'aioproducer[cli]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


def test_command_loads_only_what_it_needs() -> None:
    """`broker` runs without the consumer that `tail` needs."""
    ended = run_without("aiokafka", "broker", "--nodes", "0")

    assert (ended.returncode, ended.stderr) == (2, "aioproducer: --nodes 0: must be 1 to 9\n")


def test_version_is_told() -> None:
    """As by any command."""
    ended = run_without("pyspark", "--version")

    assert (ended.returncode, ended.stdout) == (0, f"aioproducer {aioproducer.__version__}\n")
