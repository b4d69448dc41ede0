"""The tutorials, done as they say: every block is run, in order, and prints what it says."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from aioproducer.testing.kafka.server_properties import free_ports

TUTORIALS = Path(__file__).parent.parent.parent / "docs" / "tutorials"
PROGRAMS = {
    "first_record.md": ["first_record.py", "many_records.py", "failures.py"],
    "first_transaction.md": ["transfer.py", "worker.py"],
}
BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"[Ss]ave this as `(?P<name>\w+\.py)`")
AIOPRODUCER = [sys.executable, "-c", "from aioproducer.cli.main import app; app()"]

pytestmark = [pytest.mark.slow, pytest.mark.timing]


class Command(NamedTuple):
    words: list[str]
    output: str


@pytest.fixture
def port() -> int:
    """What the tutorial's 9092 is here, where tests run side by side."""
    return free_ports(1)[0]


def programs(page: str) -> dict[str, str]:
    found = {}
    for block in BLOCK.finditer(page):
        if block["language"] == "python":
            name = NAME.search(block["before"])
            assert name is not None, f"how is this block called? {block['text']}"
            found[name["name"]] = block["text"]
    return found


def commands(page: str) -> list[Command]:
    found = []
    for block in BLOCK.finditer(page):
        if block["language"] == "console":
            command, _, output = block["text"].partition("\n")
            assert command.startswith("$ ")
            found.append(Command(command.removeprefix("$ ").split(), output))
    return found


def arguments(command: Command, port: int) -> list[str]:
    program, *rest = command.words
    if program == "python":
        return [sys.executable, *rest]
    assert program == "aioproducer"
    option = {"broker": ["--port", str(port)], "tail": ["-b", f"127.0.0.1:{port}"]}
    return [*AIOPRODUCER, *rest, *option[rest[0]]]


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready on")
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("name", PROGRAMS)
def test_tutorial_does_what_it_says(name: str, port: int, tmp_path: Path) -> None:
    page = (TUTORIALS / name).read_text("utf-8").replace("9092", str(port))
    for program, text in programs(page).items():
        (tmp_path / program).write_text(text, "utf-8")
    broker, *rest = commands(page)
    printed = []
    with running(arguments(broker, port)):
        for command in rest:
            ended = subprocess.run(
                arguments(command, port),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                cwd=tmp_path,
                timeout=60,
            )
            printed.append((command.words, ended.returncode, ended.stdout))

    assert printed == [(command.words, 0, command.output) for command in rest]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_block_is_of_a_kind_that_is_run(name: str) -> None:
    page = (TUTORIALS / name).read_text("utf-8")

    assert {block["language"] for block in BLOCK.finditer(page)} <= {"sh", "python", "console"}
    assert list(programs(page)) == PROGRAMS[name]
    assert page.count("```") == 2 * (page.count("```sh") + len(programs(page)) + len(commands(page)))
