"""One node of a real Kafka cluster: its folder, its settings, and the JVM that runs it now, if one does.

FOLDER/server.properties   FOLDER/log4j.properties   FOLDER/broker.log   FOLDER/log/ (partitions)
"""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.kafka.broker_requests import ask_for_cluster
from aioproducer.testing.kafka.programs import BrokerStartError, JavaProcess, java_command
from aioproducer.testing.kafka.server_properties import LOOPBACK, NodePorts

READY_POLL_S = 0.1
"""How often a starting node is asked whether it is ready."""

LOG4J_1 = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{HH:mm:ss.SSS} %-5p %c{1} - %m%n
"""
"""Kafka 3 logs nothing without a file that says where to; Kafka 4's log4j2 has a default that needs only a level."""


@dataclass(frozen=True, slots=True)
class NodeProgram:
    """The programs and settings that all nodes of a cluster share."""

    jars: Path
    """Folder of `kafka_jars`."""

    options: Sequence[str]
    """The JVM's: `SMALL_HEAP` or `PERFORMANCE_HEAP`, and an archive of classes."""

    plugins: Path | None = None
    """Further classes: a jar or a folder."""


class KafkaNode:
    """One broker that can be started, killed, paused and started again on the same folder and ports."""

    def __init__(self, ports: NodePorts, folder: Path, program: NodeProgram) -> None:
        """A node that does not run yet; `folder` has its formatted log folder and `server.properties`."""
        self.ports = ports
        self.folder = folder
        self.is_paused: bool = False
        self._program = program
        self._process: JavaProcess | None = None

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "running" if self.is_running else "stopped"
        return f"<KafkaNode {self.ports.node_id} {self.address} {state}>"

    @property
    def address(self) -> str:
        """HOST:PORT of its client listener."""
        return f"{LOOPBACK}:{self.ports.broker_port}"

    @property
    def is_running(self) -> bool:
        """Whether its JVM lives; a paused one does."""
        return self._process is not None and self._process.is_running

    @property
    def process_id(self) -> int:
        """The process id of the JVM that runs it, or ran it last.

        Raises:
            BrokerStartError: it was never started.
        """
        return self._launched().process_id

    @property
    def log_folder(self) -> Path:
        """The folder of its partitions: TOPIC-PARTITION/00000000000000000000.log and so on."""
        return self.folder / "log"

    def log_tail(self, lines: int = 15) -> str:
        """The last lines it logged.

        Raises:
            BrokerStartError: it was never started.
        """
        return self._launched().log_tail(lines)

    def launch(self) -> None:
        """Start its JVM, unless one runs; returns before it is ready."""
        if self.is_running:
            return
        log4j = self.folder / "log4j.properties"
        log4j.write_text(LOG4J_1, "utf-8")
        logging = ("-Dlog4j2.level=INFO", f"-Dlog4j.configuration=file:{log4j}")
        settings = str(self.folder / "server.properties")
        command = java_command(
            self._program.jars,
            "kafka.Kafka",
            [settings],
            options=(*self._program.options, *logging),
            plugins=self._program.plugins,
        )
        self._process = JavaProcess(command, self.folder / "broker.log")
        self.is_paused = False

    async def wait_until_ready(self, brokers: int) -> None:
        """Return once it accepts requests and knows of a controller and at least this many brokers.

        Raises:
            BrokerStartError: its JVM ended; with the last lines of its log.
        """
        while not await self._is_ready(brokers):
            if not self.is_running:
                raise BrokerStartError(f"node {self.ports.node_id} ended while starting:\n{self.log_tail()}")
            await asyncio.sleep(READY_POLL_S)

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End its JVM and wait for that; SIGKILL as a crash, SIGTERM as a controlled shutdown."""
        if how is not signal.SIGKILL:
            self.resume()  # a stopped process would never see the signal
        self._launched().send_signal(how)
        await self._launched().wait_for_exit()
        self.is_paused = False

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, nothing is answered."""
        self._launched().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._launched().send_signal(signal.SIGCONT)
        self.is_paused = False

    def kill_now(self) -> None:
        """End its JVM at once if one runs, without an event loop."""
        if self._process is not None:
            self._process.kill_now()

    async def _is_ready(self, brokers: int) -> bool:
        """Ask it once."""
        view = await ask_for_cluster(LOOPBACK, self.ports.broker_port)
        return view is not None and view.controller_id >= 0 and view.brokers >= brokers

    def _launched(self) -> JavaProcess:
        """The JVM that runs it, or ran it last.

        Raises:
            BrokerStartError: it was never started.
        """
        if self._process is None:
            raise BrokerStartError(f"node {self.ports.node_id} was never started")
        return self._process
