"""A broker dies with the process that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aioproducer.testing.kafka import tether
from aioproducer.testing.kafka.programs import JavaProcess

pytestmark = pytest.mark.timing

PARENT = """
import subprocess, sys, time
from pathlib import Path
from aioproducer.testing.kafka.programs import JavaProcess
child = JavaProcess(["/bin/sleep", "60"], Path(sys.argv[1]))
print(child.process_id, flush=True)
time.sleep(60)
"""


def is_running(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    """This includes kill -9, after which no clean-up code runs."""
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)

        parent.kill()

    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not is_running(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_program_is_not_started_when_the_parent_is_gone_already() -> None:
    """The kernel only reports deaths after the request."""
    tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid() + 1), "/bin/echo", "started"]

    ended = subprocess.run(tied, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (1, "")


async def test_process_is_signalled_and_reaped(tmp_path: Path) -> None:
    process = JavaProcess(["/bin/sh", "-c", "echo one; echo two; exec sleep 60"], tmp_path / "log")
    before = process.is_running

    process.send_signal(signal.SIGTERM)
    await process.wait_for_exit()

    assert (before, process.is_running) == (True, False)


async def test_log_tail_shows_the_last_lines(tmp_path: Path) -> None:
    process = JavaProcess(["/bin/sh", "-c", "echo one; echo two >&2; echo three"], tmp_path / "log")
    await process.wait_for_exit()

    assert process.log_tail(2) == "two\nthree\n"
