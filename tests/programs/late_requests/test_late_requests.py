"""A request of one transaction arrives in the next one: no effect, on each broker line.

The embedded cluster tells the same stories with more variations (tests/journeys/test_transaction_recovery.py); here
real brokers have the last word, and a consumer that is not ours.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from aioproducer import KafkaError, Producer, TopicPartition
from aioproducer.testing import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from tests.contracts.clients import read
from tests.programs.late_requests.conftest import Proxied
from tests.programs.late_requests.holding_link import HoldingLink

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

REQUEST_TIMEOUT_MS = 1_500


@dataclass(frozen=True)
class Place:
    """A broker behind a link, and names of the test's own."""

    kafka: KafkaCluster
    link: HoldingLink
    servers: str
    topic: str
    group: str

    def producer(self, **options: int) -> Producer:
        """Return a producer whose requests go through the link, and are given up soon."""
        settings = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "batch_size": 0, **options}
        return Producer(self.servers, transactional_id=f"id-{self.topic}", **settings)  # type: ignore[arg-type]

    async def read(self, isolation: str) -> list[bytes]:
        return await asyncio.to_thread(read, self.kafka.bootstrap_servers, self.topic, isolation)


@pytest.fixture
async def place(proxied_kafka: Proxied) -> AsyncIterator[Place]:
    kafka, port, _ = proxied_kafka
    proxied = kafka.node(1).ports.proxied
    assert proxied is not None
    name = secrets.token_hex(6)
    async with HoldingLink(port, proxied.port) as link:
        place = Place(kafka, link, f"127.0.0.1:{port}", f"t-{name}", f"g-{name}")
        async with Producer(place.servers) as producer:
            while len(await producer.partitions_for(place.topic)) != 4:  # noqa: ASYNC110 - made by being asked for
                await asyncio.sleep(0.05)
        yield place


async def send(producer: Producer, topic: str, value: bytes) -> None:
    await producer.send(topic, value, partition=0)


async def refused(place: Place, api: ApiKey) -> bool:
    """Let the held requests arrive during the open transaction; return whether the broker takes none of them."""
    said = await place.link.release()
    assert api in {found for found, _ in said}
    return all(codes and 0 not in codes for _, codes in said)


# Produce


@pytest.mark.parametrize("is_expired", [False, True], ids=["aborted", "expired"])
async def test_produce_that_arrives_in_the_next_transaction(place: Place, *, is_expired: bool) -> None:
    """Its transaction was aborted, by choice or by timeout. Under V1 both had one epoch without the guard."""
    async with place.producer(delivery_timeout_ms=3_000 if is_expired else 60_000) as producer:
        await producer.begin_transaction()
        await send(producer, place.topic, b"acknowledged")
        place.link.hold(ApiKey.PRODUCE)
        stray = producer.send(place.topic, b"stray", partition=0)
        await place.link.holding()
        if is_expired:
            with pytest.raises(KafkaError):
                await stray
        await producer.abort_transaction()
        place.link.pass_on()
        with contextlib.suppress(KafkaError):
            await stray

        async with producer.transaction() as txn:
            await txn.send(place.topic, b"next", partition=0)
            assert await refused(place, ApiKey.PRODUCE)
            await txn.send(place.topic, b"last", partition=0)

    assert await place.read("read_committed") == [b"next", b"last"]
    assert b"stray" not in await place.read("read_uncommitted")


# EndTxn


@pytest.mark.parametrize("verb", ["commit_transaction", "abort_transaction"])
async def test_end_that_arrives_in_the_next_transaction(place: Place, verb: str) -> None:
    """Regression: a late commit committed the next transaction, a late abort aborted it."""
    is_commit = verb == "commit_transaction"
    async with place.producer() as producer:
        await producer.begin_transaction()
        await send(producer, place.topic, b"first")
        place.link.hold(ApiKey.END_TXN)
        ending = asyncio.ensure_future(getattr(producer, verb)())
        await place.link.holding()
        place.link.pass_on()
        await ending
        await producer.begin_transaction()
        await send(producer, place.topic, b"second")

        assert await refused(place, ApiKey.END_TXN)

        assert await place.read("read_committed") == ([b"first"] if is_commit else [])
        await send(producer, place.topic, b"third")
        await (producer.abort_transaction if is_commit else producer.commit_transaction)()

    assert await place.read("read_committed") == ([b"first"] if is_commit else [b"second", b"third"])


# Offsets


async def abort_with_stray_offsets(place: Place, producer: Producer) -> None:
    """A transaction is over, and a copy of its TxnOffsetCommit is held."""
    await producer.begin_transaction()
    await send(producer, place.topic, b"aborted")
    place.link.hold(ApiKey.TXN_OFFSET_COMMIT)
    sending = asyncio.ensure_future(producer.send_offsets({(place.topic, 0): 9}, place.group))
    await place.link.holding()
    await producer.abort_transaction()
    place.link.pass_on()
    with pytest.raises(KafkaError):
        await sending


async def committed_offset(place: Place, producer: Producer) -> int | None:
    partition = TopicPartition(place.topic, 0)
    found = (await producer.committed_offsets(place.group, [partition]))[partition]
    return None if found is None else found.offset


async def test_offsets_that_arrive_before_the_next_transaction(place: Place) -> None:
    async with place.producer() as producer:
        await abort_with_stray_offsets(place, producer)
        beginning = asyncio.ensure_future(producer.begin_transaction())
        await place.link.release()
        await beginning
        await send(producer, place.topic, b"next")
        await producer.send_offsets({(place.topic, 0): 5}, place.group)
        await producer.commit_transaction()

        assert await committed_offset(place, producer) == 5
    assert await place.read("read_committed") == [b"next"]


async def test_offsets_that_arrive_in_the_next_transaction(place: Place) -> None:
    """Kafka 3.9's group coordinator refuses late offsets, and forgets those of the current transaction."""
    async with place.producer() as producer:
        await abort_with_stray_offsets(place, producer)
        async with producer.transaction() as txn:
            await txn.send(place.topic, b"next", partition=0)
            await txn.send_offsets({(place.topic, 0): 5}, place.group)
            assert await refused(place, ApiKey.TXN_OFFSET_COMMIT)

        assert await committed_offset(place, producer) == (None if place.kafka.version.startswith("3.") else 5)
    assert await place.read("read_committed") == [b"next"]
