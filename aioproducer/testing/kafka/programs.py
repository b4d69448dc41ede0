"""Programs that real brokers need, tied to this process or run to their end, and the errors of a failed start.

KafkaError
└── BrokerStartError      (RuntimeError)   Maven failed, a port is taken, the broker died or did not get ready
    └── MissingToolError                   Java or Maven is not on this machine; `.missing` says how to get it
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from aioproducer.errors import KafkaError
from aioproducer.testing.kafka import tether
from aioproducer.testing.kafka.prerequisites import INSTALL_JAVA, java_program

SMALL_HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Starts fast and stays small; for tests and demos."""

PERFORMANCE_HEAP = ("-Xms1g", "-Xmx1g")  # the collector and compiler a production broker has; for measuring
EXIT_POLL_S = 0.02  # how often a waiting call looks whether a process ended
SAID_MAX_CHARS = 2_000  # how much of what a failed program printed goes into the error; Maven says why at the start


class BrokerStartError(KafkaError, RuntimeError):
    """A real broker could not be started; the message ends with what it said last."""


class MissingToolError(BrokerStartError):
    """This machine lacks a program that real Kafka needs."""

    def __init__(self, missing: Sequence[str]) -> None:
        """Join the lines of `missing` (of `missing_for_kafka`), which stay readable one by one."""
        super().__init__("; ".join(missing))
        self.missing: tuple[str, ...] = tuple(missing)
        """One line for each missing program, with the command that installs it."""


def java_command(
    jars: Path,
    main_class: str,
    arguments: Sequence[str] = (),
    *,
    options: Sequence[str] = (),
    plugins: Path | None = None,
) -> list[str]:
    """Return the command line of a Java program of Kafka, such as "kafka.Kafka" or "kafka.tools.DumpLogSegments"."""
    java = java_program()
    if java is None:
        raise MissingToolError([f"Java is missing: {INSTALL_JAVA}"])
    classes = f"{jars}/*" if plugins is None else f"{jars}/*{os.pathsep}{plugins}"
    return [java, *options, "-cp", classes, main_class, *arguments]


def start_tied(
    command: Sequence[str], log_file: Path, *, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process (see `tether`); its output is appended to `log_file`.

    It has a process group of its own, so that Ctrl-C in a terminal does not reach it.
    """
    tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    with log_file.open("ab") as log:
        return subprocess.Popen(
            tied,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


async def run_program(command: Sequence[str]) -> str:
    """Run a program to its end, without input, and return what it printed on both streams."""
    program = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        printed, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    text = printed.decode(errors="replace")
    if program.returncode != 0:
        raise BrokerStartError(f"{command[0]} ended with exit code {program.returncode}:\n{text[:SAID_MAX_CHARS]}")
    return text


class JavaProcess:
    """One running broker: its process, and the file it logs to. Bound to no event loop."""

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        """Start `command` (of `java_command`); its output is appended to `log_file`."""
        self.log_file = log_file
        self._process = start_tied(command, log_file)

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused one runs."""
        return self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait_for_exit(self) -> None:
        while self.is_running:  # noqa: ASYNC110 - an event would bind the process to one loop
            await asyncio.sleep(EXIT_POLL_S)

    def kill_now(self) -> None:
        """Kill -9 and reap, blocking for the moment that takes; for a clean-up that has no loop any more."""
        self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        with self.log_file.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, maxlen=lines))
