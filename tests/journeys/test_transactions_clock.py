"""Transactions on a loop whose clock moves between two readings of it, as that of a busy machine does."""

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey, FakeCluster, Where

pytestmark = pytest.mark.slow

CONCURRENT_TRANSACTIONS = 51
STEP_S = 0.002


class HastyClock(asyncio.SelectorEventLoop):
    """Two milliseconds go by with every look at the clock: a pause may be over between two looks."""

    gone_by_s = 0.0

    def time(self) -> float:
        """Later each time."""
        self.gone_by_s += STEP_S
        return super().time() + self.gone_by_s


async def commit_some(count: int) -> list[bytes | None]:
    """Transactions on a coordinator that is busy twice at the end of each."""
    async with FakeCluster(nodes=1, topics={"t": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, transactional_id="clock", max_block_ms=20_000)
        await producer.start()
        for number in range(count):
            cluster.faults.error(CONCURRENT_TRANSACTIONS, Where(api=ApiKey.END_TXN), times=2)
            async with producer.transaction() as txn:
                await txn.enqueue("t", b"%d" % number)
        await producer.close()
        return [record.value for record in cluster.records("t", 0)]


def test_pause_that_ends_between_two_looks_at_the_clock_ends() -> None:
    """The request after it is asked; nobody sleeps for ever."""
    with asyncio.Runner(loop_factory=HastyClock) as runner:
        assert runner.run(commit_some(40)) == [b"%d" % number for number in range(40)]
