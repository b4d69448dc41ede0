"""What the benchmark of transactions has each client do, on the embedded cluster: the counts are the broker's."""

import asyncio
import importlib

import pytest

from aioproducer.cli.benchmark.job import Job, Outcome
from aioproducer.cli.benchmark.scenarios.transactions import MODULES, RAW_WORK
from aioproducer.testing import FakeCluster

pytestmark = pytest.mark.slow


WORK = [(f"{module}.transact", each) for module in MODULES.values() for each in (1, 50)]


@pytest.mark.parametrize("work, each", [*WORK, (RAW_WORK, 1)])
async def test_client_says_what_the_log_says(work: str, each: int) -> None:
    """Records, and a marker in each partition for each transaction."""
    async with FakeCluster(nodes=1, topics={"t": 4}) as cluster:
        job = Job(
            work="", bootstrap_servers=cluster.bootstrap_servers, topic="t", records=2 * each, per_transaction=each
        )
        name, _, function = work.partition(".")
        module = importlib.import_module(f"aioproducer.cli.benchmark.clients.{name}")

        outcome: Outcome = await asyncio.to_thread(getattr(module, function), job)

        assert outcome.acknowledged == sum(cluster.end_offset("t", number) for number in range(4))
    assert outcome.figures["records_per_s"] > 0


@pytest.mark.parametrize("client", ["ours", "aiokafka"])
async def test_copier_says_what_the_log_says(client: str) -> None:
    """Each record of the input, and a marker for each transaction in each of its partitions."""
    async with FakeCluster(nodes=1, topics={"t": 4, "t-input": 4}) as cluster:
        job = Job(work="", bootstrap_servers=cluster.bootstrap_servers, topic="t", records=200, per_transaction=50)
        copy = getattr(importlib.import_module("aioproducer.cli.benchmark.clients.copying"), client)

        outcome: Outcome = await asyncio.to_thread(copy, job)

        assert outcome.acknowledged == sum(cluster.end_offset("t", number) for number in range(4))
        assert sum(len(cluster.records("t", number)) for number in range(4)) == 200
