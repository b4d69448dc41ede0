"""`aioproducer txn` on a sink whose decided batch has lost rows."""

import pytest

from aioproducer import Producer
from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.config import ProducerConfig
from aioproducer.spark._commit import LostTransactionsError, SinkCommit, WrittenTask
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision import SinkIds, TaskEntry
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.cli.commands import run

pytestmark = pytest.mark.slow


async def decide(bootstrap_servers: str, *, loses_a_task: bool) -> None:
    """Decide a batch of two tasks under the sink s; one is aborted before the commit, or the commit never comes."""
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
        write_decision = cluster.write_decision

        async def then_stop(*arguments: object) -> object:
            found = await write_decision(*arguments)  # type: ignore[arg-type]
            if not loses_a_task:
                raise KeyboardInterrupt
            await cluster.init_producer_id(ids.data_id(0, 1, 0))
            return found

        cluster.write_decision = then_stop  # type: ignore[method-assign,assignment]
        with pytest.raises(LostTransactionsError if loses_a_task else KeyboardInterrupt):
            await commit.commit(tasks)


async def test_loss_is_told_until_it_is_accepted() -> None:
    async with FakeCluster(topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await decide(servers, loses_a_task=True)
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


async def test_batch_that_cannot_be_finished_is_told() -> None:
    """Exit code 4, as long as the right to end its transactions is missing; then nothing of it is lost."""
    async with FakeCluster(topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await decide(servers, loses_a_task=False)
        fault = cluster.faults.error(53, Where(api=ApiKey.END_TXN), times=None)
        told = [await run("txn", command, "--sink", "s", "-b", servers) for command in ("resolve", "reset")]
        cluster.faults.remove(fault)
        afterwards = await run("txn", "resolve", "--sink", "s", "-b", servers)
        found = [record.value for record in cluster.committed_records("t", 0)]

    for each in told:
        assert (each.code, each.output, len(each.errors)) == (4, "", 1)
        assert "batch 0 of [stream q] is decided, and 2 of its 2 transactions could not be committed" in each.errors[0]
    assert (afterwards.code, sorted(found)) == (0, [b"0", b"1"])
