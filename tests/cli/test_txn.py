"""`aioproducer txn` beside another client with an open transaction, and on a sink whose decided batch is unfinished."""

import asyncio
import json
import os

import confluent_kafka
import pytest

from aioproducer import Producer
from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.config import ProducerConfig
from aioproducer.spark._commit import LostTransactionsError, SinkCommit, WrittenTask
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision_record import Decision, SinkIds, TaskEntry
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.cli.commands import Ended, ended, run, started

pytestmark = pytest.mark.slow

STATES = "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead, PrepareEpochFence"


def begun(bootstrap_servers: str, topic: str) -> confluent_kafka.Producer:
    """Librdkafka in the middle of a transaction with two records in partition 0; its id is the topic's name."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    producer.produce(topic, b"2", partition=0)
    assert producer.flush(30) == 0
    return producer


async def txn(bootstrap_servers: str, command: str, *arguments: str) -> Ended:
    return await run("txn", command, *arguments, "-b", bootstrap_servers)


def rows(ended: Ended) -> list[dict[str, object]]:
    assert (ended.code, ended.errors) == (0, [])
    return [json.loads(line) for line in ended.output.splitlines()]


def listed(ended: Ended, transactional_id: str) -> list[object]:
    return [row["state"] for row in rows(ended) if row["transactional_id"] == transactional_id]


async def test_open_transaction_is_listed_and_described(broker: str, topic: str) -> None:
    producer = await asyncio.to_thread(begun, broker, topic)

    ongoing = await txn(broker, "list", "--state", "Ongoing", "--json")
    (described,) = rows(await txn(broker, "describe", topic, "--json"))
    in_words = await txn(broker, "describe", topic)
    await asyncio.to_thread(producer.abort_transaction, 30)
    afterwards = await txn(broker, "list", "--json")

    assert listed(ongoing, topic) == ["Ongoing"]
    assert (described["state"], described["timeout_ms"], described["partitions"]) == ("Ongoing", 60_000, [[topic, 0]])
    assert in_words.output.splitlines()[-1].split() == [topic, "0", "0"]
    assert listed(afterwards, topic) in (["CompleteAbort"], ["PrepareAbort"])


async def test_abandoned_id_is_taken_over(broker: str, topic: str) -> None:
    producer = await asyncio.to_thread(begun, broker, topic)

    first = await txn(broker, "abort", topic)
    again = await txn(broker, "abort", topic)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        await asyncio.to_thread(producer.commit_transaction, 30)

    assert (first.code, first.errors) == (0, [])
    assert first.output == f"{topic} taken over: its producer is fenced; its transaction in 1 partition is aborted\n"
    assert "it had no transaction open" in again.output
    assert caught.value.args[0].fatal()


@pytest.mark.parametrize("command", ["describe", "abort"])
async def test_id_that_does_not_exist_is_told(broker: str, topic: str, command: str) -> None:
    """And is not made by asking."""
    ended = await txn(broker, command, topic)

    assert (ended.code, ended.output, ended.errors) == (1, "", [f"there is no transactional id {topic!r}"])
    assert listed(await txn(broker, "list", "--json"), topic) == []


async def test_running_transaction_does_not_hang(broker: str, topic: str) -> None:
    producer = await asyncio.to_thread(begun, broker, topic)

    ended = await txn(broker, "list", "--hanging", "--topic", topic, "--longest", "0")
    await asyncio.to_thread(producer.abort_transaction, 30)

    assert (ended.code, ended.output, ended.errors) == (0, "no hanging transactions\n", [])


async def test_place_without_a_transaction_is_told(broker: str, topic: str) -> None:
    producer = await asyncio.to_thread(begun, broker, topic)
    place = ["--topic", topic, "--partition", "0", "--start-offset"]

    ended = await txn(broker, "abort", *place, "1")
    await asyncio.to_thread(producer.commit_transaction, 30)

    assert (ended.code, ended.errors) == (1, [f"no open transaction begins at offset 1 of {topic}[0]"])


async def test_marker_ends_a_transaction_at_its_place(broker: str, topic: str) -> None:
    producer = await asyncio.to_thread(begun, broker, topic)

    ended = await txn(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    (described,) = rows(await txn(broker, "describe", topic, "--json"))
    in_words = await txn(broker, "describe", topic)
    await asyncio.to_thread(producer.abort_transaction, 30)

    assert (ended.code, ended.errors) == (0, [])
    assert described["state"] == "Ongoing"
    assert in_words.output.splitlines()[-1].split() == [topic, "0", "nothing", "yet"]


async def test_nothing_at_all() -> None:
    async with FakeCluster(nodes=3) as cluster:
        ended = await txn(cluster.bootstrap_servers, "list")
        hanging = await txn(cluster.bootstrap_servers, "list", "--hanging")

    assert (ended.code, ended.output) == (0, "no transactions\n")
    assert (hanging.code, hanging.output) == (0, "no hanging transactions\n")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["list", "--topic", "t"], "--topic needs --hanging"),
        (["list", "--longest", "5"], "--longest needs --hanging"),
        (["list", "--hanging", "--state", "Ongoing"], "--state and --hanging exclude each other"),
        (["abort"], "give a transactional id, or all of"),
        (["abort", "id", "--topic", "t"], "give a transactional id, or all of"),
        (["abort", "--topic", "t", "--partition", "0"], "give a transactional id, or all of"),
        (["list", "-b", "h:x"], "h:x"),
        (["list", "-b", ""], "bootstrap_servers is empty"),
        (["describe", ""], "the transactional id must not be empty"),
        (["abort", ""], "the transactional id must not be empty"),
        (["abort", "--topic", "", "--partition", "0", "--start-offset", "0"], "--topic must not be empty"),
        (["list", "--hanging", "--topic", ""], "--topic must not be empty"),
        (["list", "--state", ""], "--state must not be empty"),
        (["resolve"], "--sink is missing"),
        (["reset", "--sink", ""], "--sink must not be empty"),
    ],
)
async def test_bad_argument_is_one_line(arguments: list[str], says: str) -> None:
    ended = await run("txn", *arguments)

    assert (ended.code, ended.output, len(ended.errors)) == (2, "", 1)
    assert says in ended.errors[0]


async def test_unknown_state_is_told() -> None:
    async with FakeCluster(nodes=1) as cluster:
        ended = await txn(cluster.bootstrap_servers, "list", "--state", "ongoing")

    assert (ended.code, ended.errors) == (2, [f"--state: brokers know no state ongoing; there are {STATES}"])


async def test_topic_that_is_not_there_is_told() -> None:
    async with FakeCluster(nodes=1, topics={"t": 1}) as cluster:
        ended = await txn(cluster.bootstrap_servers, "list", "--hanging", "--topic", "t", "--topic", "nope")

    assert (ended.code, ended.output, ended.errors) == (
        1,
        "",
        ["topic 'nope' does not exist; create it with `aioproducer topic create nope`"],
    )


async def test_reader_that_has_gone_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    async with (
        FakeCluster(nodes=1) as cluster,
        started("txn", "list", "-b", cluster.bootstrap_servers, stdout=writing) as process,
    ):
        os.close(writing)
        ended_quietly = await ended(process)

    assert (ended_quietly.code, ended_quietly.errors) == (0, [])


async def test_output_that_is_full_is_one_line() -> None:
    async with FakeCluster(nodes=1) as cluster:
        told = await run("txn", "list", "-b", cluster.bootstrap_servers, redirection=">/dev/full")

    assert (told.code, told.errors) == (1, ["standard output: No space left on device"])


async def test_nobody_answers() -> None:
    ended = await run("txn", "list", "-b", "127.0.0.1:1", "--timeout", "0.5")

    assert (ended.code, ended.output, len(ended.errors)) == (1, "", 1)


# A sink whose decided batch has lost rows, or is unfinished


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
            data_id = ids.data_id(preparation.lane, task, 0)
            async with Producer(bootstrap_servers, transactional_id=data_id) as producer:
                await producer.begin_transaction()
                await producer.enqueue("t", b"%d" % task)
                transaction = await producer.prepare_transaction()
            record = Decision(query="stream q", run="r", batch=0, writes=("t",), position=1)
            tasks.append(WrittenTask(preparation, record, TaskEntry.of(transaction, partition=task, attempt=0, rows=1)))
        write_decision = cluster.write_decision

        async def then_stop(*arguments: object) -> object:
            found = await write_decision(*arguments)  # type: ignore[arg-type]
            if not loses_a_task:
                raise KeyboardInterrupt
            await cluster.init_producer_id(ids.data_id(preparation.lane, 1, 0))
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
