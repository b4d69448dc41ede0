"""`aioproducer demo --transactions` through its exit path."""

import re
import signal
import subprocess
import sys

import psutil
import pytest

from aioproducer.testing.kafka.prerequisites import missing_for_kafka

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from aioproducer.cli.main import app; app()", "demo", "--transactions"]
SHORT = ["--records", "450", "--speed", "150"]
LONG = ["--records", "9000", "--speed", "150"]
"""Its worker is killed after 20 s."""
EXIT_INTERRUPTED = 130


def played(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command run to its end, without a terminal."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=200)


def test_short_demo_passes() -> None:
    """The worker dies and comes back, a broker dies, and the ledger adds up."""
    ended = played(*SHORT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED: every order once, and the sum was constant." in ended.stdout
    assert "worker killed (kill -9)" in ended.stdout
    assert re.search(r"broker \d killed; it led the ledger", ended.stdout)


def test_entry_that_is_missing_is_noticed() -> None:
    """The sum is wrong from then on, and the exit code says so."""
    ended = played(*SHORT, "--tamper", "missing")

    assert ended.returncode == 1
    assert "FAILED: the ledger does not add up, or is not complete." in ended.stdout
    assert re.search(r"half done +1\n", ended.stdout)


@pytest.mark.parametrize(
    "arguments, names",
    [
        (["--records", "10"], "--records 10"),
        (["--tamper", "swapped"], "--tamper swapped"),
        (["--speed", "0"], "--speed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_argument_is_one_line(arguments: list[str], names: str) -> None:
    """It names the argument, and nothing is started."""
    ended = played(*arguments)

    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert names in ended.stderr


def test_interrupted_demo_leaves_nothing() -> None:
    """Neither brokers nor the worker."""
    with subprocess.Popen([*COMMAND, *LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("transferring: 0 of" not in line and "transferring:" in line for line in process.stdout)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (EXIT_INTERRUPTED, "\ninterrupted; nothing is left running\n")
    assert len(children) == 2
    assert not any(child.is_running() for child in children)


@pytest.mark.kafka
@pytest.mark.skipif(bool(missing_for_kafka()), reason="; ".join(missing_for_kafka()))
@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_demo_on_real_kafka_passes(version: str) -> None:
    """Three nodes, on each protocol of transactions."""
    ended = played("--kafka", version, *SHORT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASSED" in ended.stdout
