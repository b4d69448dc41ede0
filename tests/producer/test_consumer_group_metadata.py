"""The member that commits offsets: taken from aiokafka's consumer, or given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiokafka
import pytest

from aioproducer import ConsumerGroupMetadata, IllegalStateError, OffsetAndMetadata, TopicPartition
from aioproducer.testing import FakeCluster


@asynccontextmanager
async def consuming(cluster: FakeCluster, *topics: str, **options: object) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    options = {"group_id": "g", "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest", **options}
    consumer = aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)
    async with consumer:
        yield consumer


@pytest.fixture(name="one")
async def fixture_one() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"t": 2}) as cluster:
        yield cluster


async def test_member_has_the_coordinators_generation_and_id(one: FakeCluster) -> None:
    async with consuming(one, "t") as consumer:
        group = ConsumerGroupMetadata.of(consumer)

    assert (group.group_id, group.generation_id, group.group_instance_id) == ("g", 1, None)
    assert group.member_id.startswith("aiokafka-")


async def test_static_member_keeps_its_own_name(one: FakeCluster) -> None:
    """KIP-345: the instance id is how the coordinator knows it again."""
    async with consuming(one, "t", group_instance_id="worker-1") as consumer:
        assert ConsumerGroupMetadata.of(consumer).group_instance_id == "worker-1"


async def test_partitions_assigned_by_hand_have_no_generation(one: FakeCluster) -> None:
    async with consuming(one) as consumer:
        consumer.assign([aiokafka.TopicPartition("t", 0)])

        assert ConsumerGroupMetadata.of(consumer) == ConsumerGroupMetadata("g")


async def test_next_generation_is_another(one: FakeCluster) -> None:
    async with consuming(one, "t") as consumer:
        before = ConsumerGroupMetadata.of(consumer)

        async with consuming(one, "t"), asyncio.timeout(10):
            while len(consumer.assignment()) != 1:  # noqa: ASYNC110 - a listener would replace the topics
                await asyncio.sleep(0.01)
            after = ConsumerGroupMetadata.of(consumer)

    assert (after.member_id, after.generation_id) == (before.member_id, before.generation_id + 1)


class Revoking(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    def __init__(self) -> None:
        self.consumer: aiokafka.AIOKafkaConsumer
        self.told: list[str] = []

    def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - aiokafka's signature
        try:
            ConsumerGroupMetadata.of(self.consumer)
        except IllegalStateError as error:
            self.told.append(str(error))

    def on_partitions_assigned(self, assigned: object) -> None:
        """Nothing to do."""


async def test_between_two_generations_there_is_no_answer(one: FakeCluster) -> None:
    """Generation -1 would switch off the check of KIP-447."""
    listener = Revoking()
    async with consuming(one) as consumer:
        listener.consumer = consumer
        consumer.subscribe(["t"], listener=listener)
        await consumer.getmany(timeout_ms=1)

    assert listener.told == ["the consumer is joining group 'g': it is no member until it is assigned"]


async def test_consumer_without_a_group_is_refused(one: FakeCluster) -> None:
    async with consuming(one, "t", group_id=None) as consumer:
        with pytest.raises(IllegalStateError, match="no group_id"):
            ConsumerGroupMetadata.of(consumer)


async def test_consumer_not_started_is_refused() -> None:
    consumer = aiokafka.AIOKafkaConsumer("t", group_id="g")

    with pytest.raises(IllegalStateError, match=r"await consumer\.start\(\) first"):
        ConsumerGroupMetadata.of(consumer)
    await consumer.stop()


@pytest.mark.parametrize(
    "arguments, kind",
    [
        (("",), ValueError),
        ((None,), TypeError),
        ((b"g",), TypeError),
        (("g", "1"), TypeError),
        (("g", True), TypeError),
        (("g", 1, None), TypeError),
        (("g", 1, "m", 5), TypeError),
    ],
)
def test_fields_are_checked(arguments: tuple[object, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ConsumerGroupMetadata(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("g", 2**40), "generation_id must be between -1 and 2147483647, not 1099511627776"),
        (("g", -2), "generation_id must be between -1 and 2147483647, not -2"),
        (("g" * 40_000,), "group_id must be at most 32767 bytes long, not 40000"),
        (("g", 1, "m" * 40_000), "member_id must be at most 32767 bytes long, not 40000"),
        (("g", 1, "\ud800"), "member_id cannot be encoded as UTF-8: surrogates not allowed"),
        (("g", 1, "m", "\ud800"), "group_instance_id cannot be encoded as UTF-8: surrogates not allowed"),
    ],
    ids=["generation too high", "generation too low", "long group", "long member", "member", "instance"],
)
def test_too_long_member_fields_are_refused(arguments: tuple[str, int, str, str], text: str) -> None:
    """Regression: the error came while the request was made, and ended a task of the producer."""
    with pytest.raises(ValueError, match=text):
        ConsumerGroupMetadata(*arguments)


def test_other_consumers_are_named() -> None:
    with pytest.raises(TypeError, match="must be an AIOKafkaConsumer, not object"):
        ConsumerGroupMetadata.of(object())


def test_values_are_equal_to_those_of_aiokafka() -> None:
    assert OffsetAndMetadata(5) == aiokafka.OffsetAndMetadata(5, "")
    assert TopicPartition("t", 1) == aiokafka.TopicPartition("t", 1)
