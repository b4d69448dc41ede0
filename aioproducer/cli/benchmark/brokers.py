"""What is sent to: real Kafka of our own, the embedded cluster in a process of its own, or somebody's."""

import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aioproducer.cli.benchmark import embedded_cluster
from aioproducer.cli.benchmark.worker_process import failure_text, pipe, python_process
from aioproducer.cli.python_child import python_command
from aioproducer.cli.transactions.cluster_questions import asking
from aioproducer.cli.waiting import CONNECT_TIMEOUT_S
from aioproducer.config._bootstrap_servers import parse_bootstrap_servers
from aioproducer.errors import KafkaError
from aioproducer.testing.kafka import BrokerStartError, KafkaCluster

REAL_PROPERTIES = {
    # what a run wrote is gone soon after it, so that a long bench does not fill the disk
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    """One broker, and how to make it stand still."""

    name: str
    bootstrap_servers: str
    stall: Callable[[], None] | None = None
    """Stops it (SIGSTOP); `None` where it is not ours to stop."""

    resume: Callable[[], None] | None = None


@asynccontextmanager
async def real_broker(version: str) -> AsyncIterator[BrokerUnderTest]:
    """One node of real Apache Kafka with a production broker's heap and compiler.

    Raises:
        BrokerStartError: it could not be started.
        MissingToolError: Java or Maven is not on this machine.
    """
    kafka = KafkaCluster(version, properties=REAL_PROPERTIES, performance=True)
    async with kafka:
        (node_id,) = kafka.node_ids
        yield BrokerUnderTest(
            f"Apache Kafka {version}, one node",
            kafka.bootstrap_servers,
            stall=lambda: kafka.pause(node_id),
            resume=lambda: kafka.resume(node_id),
        )


@asynccontextmanager
async def embedded_broker() -> AsyncIterator[BrokerUnderTest]:
    """One node of the embedded cluster in a process of its own.

    Raises:
        BrokerStartError: it ended at once; with the reason.
    """
    async with python_process(*python_command(embedded_cluster.__name__)) as process:
        address = (await pipe(process.stdout).readline()).decode().strip()
        if not address:
            said = await pipe(process.stderr).read()
            raise BrokerStartError(failure_text("the embedded cluster did not start", said))
        yield BrokerUnderTest(
            "embedded cluster, one node, in a process of its own",
            address,
            stall=_signal(process, signal.SIGSTOP),
            resume=_signal(process, signal.SIGCONT),
        )


class NoBrokerError(Exception):
    """Nobody answers where somebody's cluster should be."""


@asynccontextmanager
async def given_broker(bootstrap_servers: str) -> AsyncIterator[BrokerUnderTest]:
    """Somebody's cluster, which is left running; its topics of the bench are deleted.

    Raises:
        NoBrokerError: none of its brokers answers.
    """
    try:
        async with asking(parse_bootstrap_servers(bootstrap_servers), CONNECT_TIMEOUT_S, client_id="aioproducer-bench"):
            """A broker answers."""
    except KafkaError as error:
        raise NoBrokerError(str(error)) from error
    yield BrokerUnderTest(bootstrap_servers, bootstrap_servers)


def _signal(process: Process, number: signal.Signals) -> Callable[[], None]:
    return lambda: process.send_signal(number)
