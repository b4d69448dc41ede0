"""The broker that is measured, and its topics: real Kafka, the embedded cluster in its own process, or a given one."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aioproducer.testing.kafka import BrokerStartError, KafkaCluster
from tests.benchmarks.worker import failure_text, pipe, python_process

KAFKA_VERSION = "4.3.1"
"""The release of every figure in the documentation; another one would not be comparable."""

REAL_PROPERTIES = {
    # the records of a run are deleted soon after it, so that a long benchmark does not fill the disk
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "2000",
}
VISIBLE_POLL_S = 0.05
VISIBLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    """One broker, and how to stop it for a while; a given broker cannot be stopped."""

    name: str
    bootstrap_servers: str
    stall: Callable[[], None] | None = None
    resume: Callable[[], None] | None = None


@asynccontextmanager
async def real_broker(version: str) -> AsyncIterator[BrokerUnderTest]:
    """Start one node of real Apache Kafka with a production broker's heap and compiler."""
    async with KafkaCluster(version, properties=REAL_PROPERTIES, performance=True) as kafka:
        (node_id,) = kafka.node_ids
        yield BrokerUnderTest(
            f"Apache Kafka {version}, one node",
            kafka.bootstrap_servers,
            stall=lambda: kafka.pause(node_id),
            resume=lambda: kafka.resume(node_id),
        )


@asynccontextmanager
async def embedded_broker(*, topics: int = 0) -> AsyncIterator[BrokerUnderTest]:
    """Start one node of the embedded cluster in a process of its own, with as many `numbered_topics`."""
    async with python_process("-m", "tests.benchmarks.embedded_cluster", str(topics)) as process:
        address = (await pipe(process.stdout).readline()).decode().strip()
        if not address:
            errors = await pipe(process.stderr).read()
            raise BrokerStartError(failure_text("the embedded cluster did not start", errors))
        yield BrokerUnderTest(
            "embedded cluster, one node, in a process of its own",
            address,
            stall=lambda: process.send_signal(signal.SIGSTOP),
            resume=lambda: process.send_signal(signal.SIGCONT),
        )


@asynccontextmanager
async def given_broker(bootstrap_servers: str) -> AsyncIterator[BrokerUnderTest]:
    """Use a running cluster; only the benchmark's own topics are deleted."""
    yield BrokerUnderTest(bootstrap_servers, bootstrap_servers)


@asynccontextmanager
async def fresh_topics(bootstrap_servers: str, names: Sequence[str], partitions: int) -> AsyncIterator[None]:
    """Create topics with a leader for each of their partitions, and delete them after the block."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        async with asyncio.timeout(VISIBLE_TIMEOUT_S):
            while not await _have_all_leaders(admin, names, partitions):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(VISIBLE_POLL_S)
        await records_in(bootstrap_servers, names, partitions)  # a leader may be named before it knows that it leads
        yield
        await admin.delete_topics(names)
    finally:
        await admin.close()


async def records_in(bootstrap_servers: str, topics: Sequence[str], partitions: int) -> int:
    """Return the sum of the end offsets of topics with as many partitions each."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    try:
        await consumer.start()
        ends = await consumer.end_offsets(
            [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        )
    finally:
        await consumer.stop()
    return sum(ends.values())


async def _have_all_leaders(admin: AIOKafkaAdminClient, names: Sequence[str], partitions: int) -> bool:
    described = await admin.describe_topics(names)
    ready = [each for topic in described for each in topic["partitions"] if each["error_code"] == 0]
    return len(ready) == partitions * len(names)
