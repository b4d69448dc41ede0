"""Arguments that make exactly-once processing impossible are refused before anything is read."""

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer import ConfigurationError, IllegalStateError, Producer
from aioproducer.integrations.aiokafka import exactly_once
from aioproducer.testing import FakeCluster
from tests.integrations.workers import consuming, transacting


@pytest.fixture(name="servers")
async def fixture_servers() -> AsyncIterator[str]:
    async with FakeCluster(nodes=1, topics={"input": 1}) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize(
    "options, says",
    [
        ({"isolation_level": "read_uncommitted"}, 'isolation_level="read_committed"'),
        ({"enable_auto_commit": True}, "enable_auto_commit=False"),
        ({"group_id": None}, "group_id"),
    ],
    ids=["isolation", "auto-commit", "group"],
)
async def test_unfit_consumer_is_refused(servers: str, options: dict[str, object], says: str) -> None:
    async with consuming(servers, "input", **options) as consumer:
        with pytest.raises(ConfigurationError, match=says):
            exactly_once(consumer, transacting(servers, "copy"))


async def test_unfit_producer_is_refused(servers: str) -> None:
    """It has no transactional id, or a time-out that no transaction can keep."""
    hasty = transacting(servers, "copy", transaction_timeout_ms=1_000)
    async with consuming(servers, "input") as consumer:
        with pytest.raises(ConfigurationError, match="needs a transactional_id"):
            exactly_once(consumer, Producer(servers))
        with pytest.raises(ConfigurationError, match="must be above max_seconds=2"):
            exactly_once(consumer, hasty, max_seconds=2)


@pytest.mark.parametrize(
    "argument, kind",
    [
        ({"max_records": 0}, ValueError),
        ({"max_records": 1.5}, TypeError),
        ({"max_records": True}, TypeError),
        ({"max_seconds": 0}, ValueError),
        ({"max_seconds": float("nan")}, ValueError),
        ({"max_seconds": "1"}, TypeError),
        ({"shutdown_seconds": float("inf")}, ValueError),
        ({"on_poison": 5}, TypeError),
    ],
    ids=str,
)
async def test_bad_argument_is_refused(servers: str, argument: dict[str, object], kind: type[Exception]) -> None:
    async with consuming(servers, "input") as consumer:
        with pytest.raises(kind, match=next(iter(argument))):
            exactly_once(consumer, transacting(servers, "copy"), **argument)  # type: ignore[arg-type]


async def test_consumer_not_started_is_refused() -> None:
    consumer = AIOKafkaConsumer("t", group_id="g", isolation_level="read_committed", enable_auto_commit=False)

    with pytest.raises(IllegalStateError, match=r"await consumer\.start\(\)"):
        exactly_once(consumer, transacting("localhost:1", "copy"))
    with pytest.raises(TypeError, match="AIOKafkaConsumer"):
        exactly_once(object(), transacting("localhost:1", "copy"))
    await consumer.stop()


async def test_loop_is_entered_once(servers: str) -> None:
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        loop = exactly_once(consumer, producer)
        with pytest.raises(IllegalStateError, match="has not begun"):
            loop.stop()
        async with loop:
            loop.stop()
        with pytest.raises(IllegalStateError, match="entered already"):
            await loop.__aenter__()


async def test_two_loops_do_not_share_a_consumer(servers: str) -> None:
    """Each would commit past what the other has in hand; one after the other is well."""
    async with (
        consuming(servers, "input") as consumer,
        transacting(servers, "copy-1") as first,
        transacting(servers, "copy-2") as second,
    ):
        async with exactly_once(consumer, first):
            with pytest.raises(IllegalStateError, match="a consumer of its own"):
                await exactly_once(consumer, second).__aenter__()
        async with exactly_once(consumer, second) as loop:
            loop.stop()
