"""Real Kafka changes its `transaction.version` while a producer runs.

The embedded cluster tells the same stories with more variations (tests/journeys/test_transaction_recovery.py).
"""

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from importlib import import_module

import pytest

from aioproducer import BrokerError, Producer
from aioproducer.testing import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.contracts.clients import RawClient, read

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

UPGRADE, DOWNGRADE = 1, 2
LOOK_S = 2.0
on_both_ends = pytest.mark.parametrize(
    "verb", ["commit_transaction", pytest.param("abort_transaction", marks=pytest.mark.nightly)]
)


class FeatureApi(IntEnum):
    """UpdateFeatures, which `kafka-features.sh` sends; the fake brokers do not serve it."""

    UPDATE_FEATURES = 57

    @property
    def schema_name(self) -> str:
        return self.name.lower()

    def is_flexible(self, _: int) -> bool:
        return True


@dataclass(frozen=True)
class Node:
    """The broker, and a topic on it for one test."""

    kafka: KafkaCluster
    topic: str
    thread: ThreadPoolExecutor  # the broker dies with the thread that starts it

    def producer(self) -> Producer:
        options = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 60_000}
        return Producer(self.kafka.bootstrap_servers, transactional_id=f"id-{self.topic}", **options)  # type: ignore[arg-type]

    async def finalize(self, level: int) -> None:
        message = import_module("kio.schema.update_features.v1.request")
        kind = UPGRADE if level else DOWNGRADE
        update = message.FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
        client = await RawClient.connect(self.kafka.bootstrap_servers)
        fields = {"timeout": timedelta(seconds=20), "feature_updates": (update,), "validate_only": False}
        answer = await client.ask(FeatureApi.UPDATE_FEATURES, 1, **fields)  # type: ignore[arg-type]
        assert int(answer.error_code) == 0, answer
        while await finalized(client) != level:  # noqa: ASYNC110 - asks a broker
            await asyncio.sleep(0.05)
        await client.close()

    async def restart(self) -> None:
        await self.kafka.kill(1)
        await asyncio.wrap_future(self.thread.submit(lambda: asyncio.run(self.kafka.restart(1))))

    async def committed(self) -> list[bytes]:
        return await asyncio.to_thread(read, self.kafka.bootstrap_servers, self.topic, "read_committed")


async def finalized(client: RawClient) -> int:
    answer = await client.ask(ApiKey.API_VERSIONS, 3, client_software_name="test", client_software_version="1")
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return int(levels.get("transaction.version", 0))


@pytest.fixture(scope="module")
def kafka(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    yield from running_kafka("4.4.0", kafka_thread)


@pytest.fixture
def node(kafka: KafkaCluster, kafka_thread: ThreadPoolExecutor) -> Node:
    return Node(kafka, f"t-{secrets.token_hex(6)}", kafka_thread)


async def end_and_go_on(producer: Producer, topic: str, verb: str) -> None:
    await getattr(producer, verb)()
    async with producer.transaction() as txn:
        await txn.send(topic, b"next", partition=0)


async def has_not_ended(ending: "asyncio.Future[None]") -> bool:
    done, _ = await asyncio.wait([ending], timeout=LOOK_S)
    return not done


@on_both_ends
@pytest.mark.parametrize("is_told", [False, True], ids=["unnoticed", "told"])
async def test_upgrade_in_the_middle_of_a_transaction(node: Node, verb: str, *, is_told: bool) -> None:
    """It continues as V1, and so do later ones until a new connection shows the new level."""
    await node.finalize(0)
    async with node.producer() as producer:
        await producer.begin_transaction()
        await producer.send(node.topic, b"before", partition=0)
        await node.finalize(2)
        if is_told:
            await node.restart()
        await producer.send(node.topic, b"after", partition=0)
        await end_and_go_on(producer, node.topic, verb)

    kept = [b"before", b"after"] if verb == "commit_transaction" else []
    assert await node.committed() == [*kept, b"next"]


@on_both_ends
async def test_noticed_downgrade_in_the_middle_of_a_transaction(node: Node, verb: str) -> None:
    """The transaction ends as V1."""
    await node.finalize(2)
    async with node.producer() as producer:
        await producer.begin_transaction()
        await producer.send(node.topic, b"before", partition=0)
        await node.finalize(0)
        await node.restart()
        await end_and_go_on(producer, node.topic, verb)

    assert await node.committed() == [*([b"before"] if verb == "commit_transaction" else []), b"next"]


@on_both_ends
async def test_unnoticed_downgrade_in_the_middle_of_a_transaction(node: Node, verb: str) -> None:
    """Its end is refused, until there is another coordinator."""
    await node.finalize(2)
    async with node.producer() as producer:
        await producer.begin_transaction()
        await producer.send(node.topic, b"before", partition=0)
        await node.finalize(0)
        ending = asyncio.ensure_future(getattr(producer, verb)())
        assert await has_not_ended(ending)
        await node.restart()
        await ending
        await producer.begin_transaction()
        await end_and_go_on(producer, node.topic, "abort_transaction")

    assert await node.committed() == [*([b"before"] if verb == "commit_transaction" else []), b"next"]


async def test_downgrade_that_is_not_noticed_between_transactions(node: Node) -> None:
    """The first record is refused, and its abort waits until the level is what it was and the coordinator another.

    Kafka 4.4.0 refuses InitProducerId too, to an id whose last transaction was V2, while V2 is not finalized.
    """
    await node.finalize(2)
    async with node.producer() as producer:
        async with producer.transaction() as txn:
            await txn.send(node.topic, b"before", partition=0)
        await node.finalize(0)
        await producer.begin_transaction()
        with pytest.raises(BrokerError, match="TRANSACTION_ABORTABLE"):
            await producer.send(node.topic, b"never", partition=0)
        aborting = asyncio.ensure_future(producer.abort_transaction())
        assert await has_not_ended(aborting)
        await node.finalize(2)
        await node.restart()
        await aborting
        async with producer.transaction() as txn:
            await txn.send(node.topic, b"next", partition=0)

    assert await node.committed() == [b"before", b"next"]
