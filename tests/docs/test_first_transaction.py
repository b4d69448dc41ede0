"""The tutorial on transactions, done as it says: every block is run, in order, and prints what it says."""

import subprocess
from pathlib import Path

import pytest

from aioproducer.testing.kafka.server_properties import free_ports
from tests.docs.test_first_record import arguments, commands, programs, running

TUTORIAL = Path(__file__).parent.parent.parent / "docs" / "tutorials" / "first_transaction.md"

pytestmark = [pytest.mark.slow, pytest.mark.timing]


def test_tutorial_does_what_it_says(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    page = TUTORIAL.read_text("utf-8").replace("9092", str(port))
    for name, program in programs(page).items():
        (tmp_path / name).write_text(program, "utf-8")
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

    assert list(programs(page)) == ["transfer.py", "worker.py"]
    assert printed == [(command.words, 0, command.output) for command in rest]
