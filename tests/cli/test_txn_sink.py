"""`aioproducer txn` on a sink whose decided batch has lost rows."""

import pytest

from aioproducer import Producer
from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.config import ProducerConfig
from aioproducer.spark._commit import LostTransactionsError, SinkCommit, WrittenTask
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision import SinkIds, TaskEntry
from aioproducer.testing import FakeCluster
from tests.cli.commands import run

pytestmark = pytest.mark.slow


async def lose_a_task(bootstrap_servers: str) -> None:
    """Decide a batch of two tasks under the sink s, one of which is aborted before it is committed."""
    ids = SinkIds("s")
    async with ClusterRequests(ProducerConfig(bootstrap_servers=bootstrap_servers).bootstrap, 20.0) as requests:
        await requests.refresh(["t"])
        cluster = SinkCluster(requests, ids, topic="t")
        commit = SinkCommit(ids, cluster, cluster.partitions)
        preparation = await commit.prepare()
        tasks = []
        for task in range(2):
            async with Producer(bootstrap_servers, transactional_id=ids.data_id(0, task, 0)) as producer:
                await producer.begin_transaction()
                await producer.enqueue("t", b"%d" % task)
                transaction = await producer.prepare_transaction()
            tasks.append(
                WrittenTask(preparation, 0, "stream q", TaskEntry.of(transaction, partition=task, attempt=0, rows=1))
            )
        decide = cluster.write_decision

        async def decide_and_lose(*arguments: object) -> object:
            found = await decide(*arguments)  # type: ignore[arg-type]
            await cluster.init_producer_id(ids.data_id(0, 1, 0))
            return found

        cluster.write_decision = decide_and_lose  # type: ignore[method-assign,assignment]
        with pytest.raises(LostTransactionsError):
            await commit.commit(tasks)


async def test_loss_is_told_until_it_is_accepted() -> None:
    async with FakeCluster(topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await lose_a_task(servers)
        told = [await run("txn", command, "--sink", "s", "-b", servers) for command in ("resolve", "reset")]
        accepted = await run("txn", "resolve", "--sink", "s", "--accept-loss", "-b", servers)
        afterwards = await run("txn", "resolve", "--sink", "s", "-b", servers)
        found = [record.value for record in cluster.committed_records("t", 0)]

    for each in told:
        assert (each.code, each.output, len(each.errors)) == (3, "", 1)
        assert "1 rows are missing: s.0.1.0 (1 rows)" in each.errors[0]
        assert each.errors[0].endswith("To go on without them: aioproducer txn resolve --sink s --accept-loss")
    for each in (accepted, afterwards):
        assert (each.code, each.errors) == (0, [])
        assert each.output == "sink s: batch 0 of [stream q] is committed; 0 open transactions ended\n"
    assert found == [b"0"]
