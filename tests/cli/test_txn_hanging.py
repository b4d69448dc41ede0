"""A transaction that hangs on real Kafka: found as Kafka's own tool finds it, and ended by `aioproducer txn abort`.

It is made as in the days before Kafka 3.6: the brokers do not verify what belongs to a transaction
(`transaction.partition.verification.enable=false`), and a Produce comes after the end of its transaction.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.cache import kafka_jars
from aioproducer.testing.kafka.programs import java_command, run_program
from tests.cli.commands import Ended, run
from tests.contracts.clients import RawClient, TransactionalClient, read
from tests.kafka_releases import PROPERTIES, RELEASES, releases_of_each_run, version_of_release

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

UNVERIFIED = {**PROPERTIES, "transaction.partition.verification.enable": "false"}
OLD_PRODUCE = 9


class Hanging(NamedTuple):
    """Where a transaction hangs."""

    kafka: KafkaCluster
    topic: str
    producer_id: int
    start_offset: int

    async def txn(self, *arguments: str) -> Ended:
        return await run("txn", *arguments, "-b", self.kafka.bootstrap_servers)

    async def committed(self) -> list[bytes]:
        return await asyncio.to_thread(read, self.kafka.bootstrap_servers, self.topic, "read_committed")

    async def found_by_kafka(self) -> list[list[str]]:
        """The rows of `kafka-transactions.sh find-hanging`."""
        jars = await kafka_jars(self.kafka.version, tools=True)
        servers = ("--bootstrap-server", self.kafka.bootstrap_servers)
        where = ("--topic", self.topic, "--partition", "0", "--max-transaction-timeout", "0")
        command = java_command(jars, "org.apache.kafka.tools.TransactionsCommand", (*servers, "find-hanging", *where))
        rows = [line.split() for line in (await run_program(command)).splitlines()]
        return [words for words in rows if words[:1] == [self.topic]]  # not its header, nor what Java logs


@pytest.fixture(scope="module", params=releases_of_each_run("4.4.0"))
def kafka(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """A node of each release that verifies nothing."""
    release = request.param
    kafka = KafkaCluster(version_of_release(release), properties=UNVERIFIED, features=RELEASES[release])
    kafka_thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield kafka
    kafka_thread.submit(lambda: asyncio.run(kafka.stop())).result()


async def hang(kafka: KafkaCluster, topic: str) -> Hanging:
    """Commit a transaction, have a Produce of it arrive late, and write something behind it."""
    client = await RawClient.connect(kafka.bootstrap_servers)
    await client.create_topic(topic)
    producer = TransactionalClient(client, f"id-{topic}")
    assert (await producer.init()).error == 0
    assert await producer.add_partitions(topic) == 0
    assert await producer.produce(topic, version=OLD_PRODUCE, value=b"committed") == 0
    assert (await producer.end(commit=True, version=3)).error == 0
    await producer.state()
    start, _ = await client.offset(topic, -1)
    assert await producer.produce(topic, 1, version=OLD_PRODUCE, value=b"late") == 0
    await client.close()
    async with Producer(kafka.bootstrap_servers) as other:
        await other.send(topic, b"behind", partition=0)
    return Hanging(kafka, topic, producer.producer_id, start)


async def test_hanging_transaction_is_found_and_ended(kafka: KafkaCluster) -> None:
    there = await hang(kafka, f"ledger-{secrets.token_hex(4)}")
    look = ("list", "--hanging", "--topic", there.topic, "--longest", "0")
    place = ("--topic", there.topic, "--partition", "0", "--start-offset", str(there.start_offset))

    before = await there.committed()
    by_kafka = await there.found_by_kafka()
    found = await there.txn(*look, "--json")
    listed = await there.txn(*look)
    ended = await there.txn("abort", *place)
    afterwards = await there.txn(*look)

    (row,) = [json.loads(line) for line in found.output.splitlines()]
    assert (found.code, row["producer_id"], row["transaction_start_offset"]) == (
        1,
        there.producer_id,
        there.start_offset,
    )
    assert [(words[0], words[2], words[5]) for words in by_kafka] == [
        (there.topic, str(there.producer_id), str(there.start_offset))
    ]
    assert f"aioproducer txn abort {' '.join(place)}" in listed.output
    assert (ended.code, ended.errors) == (0, [])
    assert (afterwards.code, afterwards.output) == (0, "no hanging transactions\n")
    assert (before, await there.committed()) == ([b"committed"], [b"committed", b"behind"])


async def test_coordinator_knows_nothing_of_it(kafka: KafkaCluster) -> None:
    """So taking the id over does not end it."""
    there = await hang(kafka, f"ledger-{secrets.token_hex(4)}")

    described = await there.txn("describe", f"id-{there.topic}", "--json")
    taken_over = await there.txn("abort", f"id-{there.topic}")
    still = await there.txn("list", "--hanging", "--topic", there.topic, "--longest", "0")

    assert (json.loads(described.output)["state"], json.loads(described.output)["partitions"]) == ("CompleteCommit", [])
    assert "it had no transaction open" in taken_over.output
    assert still.code == 1
