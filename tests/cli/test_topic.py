"""`aioproducer topic`, on the embedded cluster and on real brokers."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.errors import MetadataTimeoutError
from aioproducer.testing import FakeCluster
from tests.cli.commands import Ended, ended, refused, run, started

pytestmark = pytest.mark.slow


async def topic_command(bootstrap_servers: str, command: str, *arguments: str, stdin: bytes = b"") -> Ended:
    return await run("topic", command, *arguments, "-b", bootstrap_servers, stdin=stdin)


async def test_topic_is_created_described_and_deleted(broker: str, topic: str) -> None:
    settings = ["--config", "retention.ms=86400000", "--config", "cleanup.policy=compact,delete"]
    created = await topic_command(broker, "create", topic, "--partitions", "3", "--replication", "1", *settings)
    async with Producer(broker) as producer:
        sent = await producer.send_and_wait(topic, b"v", key=b"k", partition=2)  # at once
    described = await topic_command(broker, "describe", topic, "--json")
    in_words = await topic_command(broker, "describe", topic)
    listed = await topic_command(broker, "list", "--json")
    deleted = await topic_command(broker, "delete", topic, stdin=b"y\n")
    again = await topic_command(broker, "delete", topic, "--yes")

    assert created == (0, f"topic {topic} created: 3 partitions, 1 replica each\n", [])
    assert sent.offset == 0
    row = json.loads(described.output)
    size = {"topic": topic, "partitions": 3, "replication": 1, "internal": False}
    assert {name: row[name] for name in size} == size
    assert row["settings"] == {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}
    assert row["placement"] == [
        {"partition": number, "leader": 1, "replicas": [1], "in_sync": [1]} for number in range(3)
    ]
    assert in_words.output.splitlines()[:3] == [
        f"topic     {topic}: 3 partitions, 1 replica each",
        "setting   cleanup.policy=compact,delete",
        "setting   retention.ms=86400000",
    ]
    assert size in [json.loads(line) for line in listed.output.splitlines()]
    question = f"Delete this topic with all records on {broker}? [y/N] "
    assert (deleted.code, deleted.output) == (0, f"topic {topic} deleted\n")
    assert deleted.errors == [f"topic {topic}: 3 partitions, 1 replica each", question]
    hint = f"create it with `aioproducer topic create {topic}`"
    assert (again.code, again.errors) == (1, [f"topic {topic!r} does not exist; {hint}"])


async def test_counts_of_the_cluster_are_the_default(broker: str, topic: str) -> None:
    created = await topic_command(broker, "create", topic)

    assert (created.code, created.errors) == (0, [])
    assert created.output.startswith(f"topic {topic} created: ")


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["--replication", "3"], "INVALID_REPLICATION_FACTOR: "),
        (["--config", "retention=3"], "INVALID_CONFIG: Unknown topic config name: retention"),
        (["--config", "retention.ms=soon"], "INVALID_CONFIG: Invalid value soon for configuration retention.ms"),
    ],
    ids=["replication", "name", "value"],
)
async def test_refusal_is_the_brokers_own(broker: str, topic: str, *, arguments: list[str], error: str) -> None:
    ended = await topic_command(broker, "create", topic, *arguments)

    assert (ended.code, ended.output) == (1, "")
    assert ended.errors[0].startswith(f"topic {topic!r} was not created: {error}")


async def test_topic_that_exists_is_not_created_again(broker: str, topic: str) -> None:
    await topic_command(broker, "create", topic, "--partitions", "2")

    again = await topic_command(broker, "create", topic, "--partitions", "3")

    text = f"topic {topic!r} was not created: TOPIC_ALREADY_EXISTS: Topic '{topic}' already exists."
    assert (again.code, again.output, again.errors) == (1, "", [text])


@pytest.mark.parametrize("answered", [b"n\n", b"\n", b""], ids=["no", "default", "end of input"])
async def test_nothing_is_deleted_without_a_yes(answered: bytes) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        ended = await topic_command(cluster.bootstrap_servers, "delete", "t", stdin=answered)

        assert (ended.code, ended.output) == (1, "")
        assert ended.errors[-1].endswith("nothing was deleted")
        assert cluster.end_offset("t", 0) == 0  # it is there


async def test_answer_that_comes_later_is_waited_for() -> None:
    """A parent on asyncio or Node leaves O_NONBLOCK on its pipes."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    async with (
        FakeCluster(1, topics={"t": 1}, auto_create_topics=False) as cluster,
        started("topic", "delete", "t", "-b", cluster.bootstrap_servers, stdin=reader) as process,
    ):
        os.close(reader)
        assert process.stderr is not None
        await asyncio.wait_for(process.stderr.readuntil(b"[y/N] "), 30)
        await asyncio.sleep(0.2)
        os.write(writer, b"y\n")
        os.close(writer)
        command = await asyncio.wait_for(ended(process), 30)

    assert (command.code, command.output) == (0, "topic t deleted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_ends_with_its_code(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        async with started("topic", "list", "-b", f"127.0.0.1:{silent.getsockname()[1]}") as process:
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                process.send_signal(number)
                command = await asyncio.wait_for(ended(process), 30)

    assert command.code == 128 + number


async def test_no_topic_is_deleted_if_one_does_not_exist() -> None:
    async with FakeCluster(1, topics={"t": 1}, auto_create_topics=False) as cluster:
        ended = await topic_command(cluster.bootstrap_servers, "delete", "t", "missing", "--yes")

        assert ended.code == 1
        assert cluster.end_offset("t", 0) == 0


async def test_connection_comes_from_the_file_of_config(tmp_path: Path) -> None:
    async with FakeCluster(1) as cluster:
        file = tmp_path / "client.properties"
        file.write_text(f"bootstrap.servers={cluster.bootstrap_servers}\n", "utf-8")
        settings = ["--config", os.fspath(file), "--config", "retention.ms=1000"]

        created = await run("topic", "create", "t", "--partitions", "2", *settings)
        listed = await run("topic", "list", "--config", os.fspath(file))

        assert (created.code, created.errors) == (0, [])
        assert listed.output.splitlines() == ["TOPIC  PARTITIONS  REPLICATION", "t      2           1"]


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["create", "a b"], "topic 'a b' has the character ' '; a topic name is made of a-z A-Z 0-9 . _ -"),
        (["create", "t", "--config", "a.b=1", "--config", "a.b=2"], "--config: a.b is given twice"),
        (
            ["create", "t", "--config", "x", "--config", "y"],
            "--config: one file, and settings as NAME=VALUE; given are the files x, y",
        ),
        (["create", "t", "--config", "retention.ms"], "--config retention.ms: No such file or directory"),
    ],
)
def test_invalid_usage_is_refused_before_connecting(arguments: list[str], error: str) -> None:
    ended = refused("topic", *arguments)

    assert (ended.code, ended.output, ended.errors) == (2, "", [error])


async def test_missing_topic_of_a_send_names_the_command() -> None:
    """The library says it too, for instance to a service whose cluster creates no topics by itself."""
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        producer = Producer(cluster.bootstrap_servers, max_block_ms=300)
        await producer.start()
        with pytest.raises(MetadataTimeoutError, match="create it with `aioproducer topic create orders`"):
            await producer.send("orders", b"v")
        await producer.close()
