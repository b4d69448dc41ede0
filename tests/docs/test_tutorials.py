"""The tutorials, done as they say: every block is run, in order, and prints what it says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from aioproducer.testing.kafka.server_properties import free_ports
from tests.outbox.postgres import Postgres, missing_for_postgres

TUTORIALS = Path(__file__).parent.parent.parent / "docs" / "tutorials"
PROGRAMS = {
    "first_record.md": ["first_record.py", "many_records.py", "failures.py"],
    "first_transaction.md": ["transfer.py", "worker.py"],
    "first_outbox.md": ["service.py"],
}
READY = {"broker": "ready on", "service:app": "INFO:     Uvicorn running on"}
"""Commands that run until the end, by their first argument, and what they print when they are ready."""
BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"[Ss]ave this as `(?P<name>\w+\.py)`")
AIOPRODUCER = [sys.executable, "-c", "from aioproducer.cli.main import app; app()"]

pytestmark = [pytest.mark.slow, pytest.mark.timing]


class Command(NamedTuple):
    words: list[str]
    output: str


@pytest.fixture
def ports() -> dict[str, str]:
    """What the tutorials' ports are here, where tests run side by side."""
    return dict(zip(("9092", "8000"), map(str, free_ports(2)), strict=True))


@pytest.fixture
def database() -> Iterator[dict[str, str]]:
    """The port of a PostgreSQL of the test's own, in the place of the tutorial's."""
    if missing := missing_for_postgres():
        pytest.skip(missing)
    server = Postgres()
    yield {"5432": str(server.port)}
    server.stop()


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
            found.append(Command(shlex.split(command.removeprefix("$ ")), output))
    return found


def arguments(command: Command, ports: dict[str, str]) -> list[str]:
    program, *rest = command.words
    if program == "curl":
        return command.words
    if program in {"python", "uvicorn"}:
        module = ["-m", "uvicorn", "--port", ports["8000"]] if program == "uvicorn" else []
        return [sys.executable, *module, *rest]
    assert program == "aioproducer"
    option = {"broker": ["--port", ports["9092"]], "tail": ["-b", f"127.0.0.1:{ports['9092']}"]}
    return [*AIOPRODUCER, *rest, *option[rest[0]]]


@contextmanager
def running(command: list[str], ready: str, folder: Path) -> Iterator[None]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith(ready):
                break
        else:
            pytest.fail("".join(said))
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


def do(name: str, ports: dict[str, str], folder: Path) -> None:
    """Run the commands of a tutorial, and compare what they print."""
    page = (TUTORIALS / name).read_text("utf-8")
    for shown, real in ports.items():
        page = page.replace(shown, real)
    for program, text in programs(page).items():
        (folder / program).write_text(text, "utf-8")
    printed, expected = [], []
    with ExitStack() as until_the_end:
        for command in commands(page):
            if command.words[1] in READY:
                started = running(arguments(command, ports), READY[command.words[1]], folder)
                until_the_end.enter_context(started)
                continue
            ended = subprocess.run(
                arguments(command, ports),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                cwd=folder,
                timeout=60,
            )
            printed.append((command.words, ended.returncode, ended.stdout.rstrip()))
            expected.append((command.words, 0, command.output.rstrip()))

    assert printed == expected


@pytest.mark.parametrize("name", ["first_record.md", "first_transaction.md"])
def test_tutorial_does_what_it_says(name: str, ports: dict[str, str], tmp_path: Path) -> None:
    do(name, ports, tmp_path)


def test_tutorial_of_the_outbox_does_what_it_says(
    ports: dict[str, str], database: dict[str, str], tmp_path: Path
) -> None:
    do("first_outbox.md", ports | database, tmp_path)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_block_is_of_a_kind_that_is_run(name: str) -> None:
    page = (TUTORIALS / name).read_text("utf-8")

    assert {block["language"] for block in BLOCK.finditer(page)} <= {"sh", "python", "console"}
    assert list(programs(page)) == PROGRAMS[name]
    assert page.count("```") == 2 * (page.count("```sh") + len(programs(page)) + len(commands(page)))
