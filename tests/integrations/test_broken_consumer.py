"""A consumer that breaks by itself, as aiokafka's may where a broker is lost: the loop goes on, or says it cannot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from operator import attrgetter

import pytest

from aioproducer import IllegalStateError
from aioproducer.integrations.aiokafka import ExactlyOnce, exactly_once
from aioproducer.testing import ApiKey, FakeCluster
from tests.integrations.workers import assert_copied_once, consuming, copy, copy_until_processed, fill, transacting

pytestmark = pytest.mark.slow

TOTAL = 60


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"input": 4, "output": 4}) as cluster:
        await fill(cluster.bootstrap_servers, "input", range(TOTAL))
        yield cluster


@pytest.mark.parametrize("after_s", [None, 0.03], ids=["at once", "while it waits"])
async def test_stray_cancellation_costs_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, after_s: float | None
) -> None:
    """Records read meanwhile are read again."""
    servers = cluster.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:
        getmany, calls = consumer.getmany, 0

        async def cancelled_now_and_then(**options: int) -> object:
            nonlocal calls
            calls += 1
            if calls not in {1, 3, 4}:
                return await getmany(**options)
            if after_s is not None:
                await asyncio.sleep(after_s)
            raise asyncio.CancelledError

        monkeypatch.setattr(consumer, "getmany", cancelled_now_and_then)
        async with exactly_once(consumer, producer, max_records=7) as batches:
            await copy_until_processed(batches, servers, TOTAL)
        await assert_copied_once(servers, TOTAL)

    assert calls > 4


async def test_cancellations_without_end_are_no_busy_loop(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = cluster.bootstrap_servers
    async with consuming(servers, "input") as consumer, transacting(servers, "copy") as producer:

        async def cancelled(**_: int) -> object:
            raise asyncio.CancelledError

        monkeypatch.setattr(consumer, "getmany", cancelled)
        async with exactly_once(consumer, producer) as batches:
            step = asyncio.ensure_future(anext(batches, None))
            await asyncio.sleep(1.0)
            batches.stop()
            assert await step is None

    asked = sum(request.api is ApiKey.OFFSET_FETCH for request in cluster.requests)
    assert asked < 12


async def copy_until_it_breaks(batches: ExactlyOnce, harm: Callable[[], object]) -> None:
    """A batch, and what is left to read when the harm is done."""
    await copy(*await anext(batches))
    harm()
    async for batch in batches:
        await copy(*batch)


@pytest.mark.parametrize("task", ["_fetcher._fetch_task", "_coordinator._coordination_task"])
async def test_consumer_whose_tasks_have_ended_ends_the_loop(cluster: FakeCluster, task: str) -> None:
    """It would stay a member and read nothing; another consumer continues at its position."""
    servers = cluster.bootstrap_servers
    async with transacting(servers, "copy") as producer:
        async with consuming(servers, "input") as consumer, exactly_once(consumer, producer, max_records=7) as batches:
            harm = attrgetter(f"{task}.cancel")(consumer)
            with pytest.raises(IllegalStateError, match="start another consumer"):
                await copy_until_it_breaks(batches, harm)
        async with consuming(servers, "input") as consumer, exactly_once(consumer, producer) as batches:
            await copy_until_processed(batches, servers, TOTAL)
        await assert_copied_once(servers, TOTAL)
