"""`aioproducer tail`, as users meet it: a process, a cluster, and a pipe to the next program."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from aioproducer._producer.producer import Producer
from aioproducer.testing import FakeCluster
from tests.cli.commands import Ended, ended, read_to_end, refused, run, started

pytestmark = [pytest.mark.slow, pytest.mark.timing]  # each starts a process


async def send(cluster: FakeCluster, *values: bytes | None, topic: str = "t") -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for value in values:
            await producer.enqueue(topic, value, key=b"k", headers=[("h", b"1")])


async def reading(process: Process) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(15):
        await process.stderr.readuntil(b"; Ctrl-C ends\n")


async def test_everything_from_the_beginning(cluster: FakeCluster) -> None:
    await send(cluster, b"a", None, b"\xff")

    command = await run("tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning", "--max", "3")

    assert command == Ended(0, "0:0\tk\ta\n0:1\tk\tnull\n0:2\tk\t0xff\n", ["reading t; Ctrl-C ends"])


async def test_json_is_for_programs(cluster: FakeCluster) -> None:
    await send(cluster, b"\xff")

    command = await run(*f"tail t -b {cluster.bootstrap_servers} --from-beginning -n 1 --format json".split())

    record = json.loads(command.output)
    assert (record["value"], record["headers"]) == ({"base64": "/w=="}, [["h", "1"]])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_what_arrives_is_shown_until_a_signal(cluster: FakeCluster, number: signal.Signals) -> None:
    await send(cluster, b"before")
    async with started("tail", "t", "-b", cluster.bootstrap_servers) as process:
        await reading(process)
        await send(cluster, b"after")
        assert process.stdout is not None
        shown = await asyncio.wait_for(process.stdout.readline(), 15)

        process.send_signal(number)
        command = await asyncio.wait_for(ended(process), 30)

    assert shown == b"0:1\tk\tafter\n"
    assert command == Ended(0, "", [])


async def test_topic_is_waited_for_and_not_made(cluster: FakeCluster) -> None:
    async with started("tail", "later", "-b", cluster.bootstrap_servers, "--max", "1") as process:
        await reading(process)
        assert cluster.model.topics.named("later") is None
        await send(cluster, b"first", topic="later")

        command = await ended(process)

    assert command.code == 0
    assert command.output.endswith("\tk\tfirst\n")


async def test_topic_is_waited_for_while_brokers_are_down(cluster: FakeCluster) -> None:
    async with started("tail", "later", "-b", cluster.bootstrap_servers, "--max", "1") as process:
        await reading(process)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        assert process.stderr is not None
        told = await asyncio.wait_for(process.stderr.readline(), 15)
        for node_id in (1, 2):
            await cluster.restart(node_id)
        await send(cluster, b"first", topic="later")

        command = await asyncio.wait_for(ended(process), 30)

    assert told.startswith(b"aioproducer: Unable connect to node")
    assert command.code == 0
    assert command.output.endswith("\tk\tfirst\n")


async def test_group_goes_on_after_what_it_has_shown(cluster: FakeCluster) -> None:
    await send(cluster, b"a", b"b", b"c")
    arguments = f"tail t -b {cluster.bootstrap_servers} --group g --from-beginning --format value --max".split()

    first = await run(*arguments, "2")
    second = await run(*arguments, "1")

    assert (first.output, second.output) == ("a\nb\n", "c\n")


async def test_reader_that_goes_ends_it(cluster: FakeCluster) -> None:
    await send(cluster, b"a")
    reader, writer = os.pipe()
    async with started("tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning", stdout=writer) as process:
        os.close(writer)
        await asyncio.to_thread(os.read, reader, 100)
        os.close(reader)

        command = await asyncio.wait_for(ended(process), 30)

    assert (command.code, command.errors) == (0, ["reading t; Ctrl-C ends"])


async def test_output_that_is_full_is_one_line(cluster: FakeCluster) -> None:
    await send(cluster, b"v")
    arguments = ["tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning"]
    async with started(*arguments, redirection=">/dev/full") as process:
        command = await asyncio.wait_for(ended(process), 30)

    assert (command.code, command.errors[-1]) == (1, "standard output: No space left on device")


async def test_standard_error_that_is_full_hides_no_record(cluster: FakeCluster) -> None:
    await send(cluster, b"v")
    arguments = ["tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning", "-n", "1"]
    async with started(*arguments, redirection="2>/dev/full") as process:
        command = await asyncio.wait_for(ended(process), 30)

    assert (command.code, command.output) == (0, "0:0\tk\tv\n")


async def test_output_that_takes_nothing_now_is_waited_for(cluster: FakeCluster) -> None:
    """A parent on asyncio or Node leaves O_NONBLOCK on its pipes."""
    await send(cluster, *[b"x" * 1_000] * 300)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    arguments = ["tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning", "-n", "300", "--format", "value"]
    async with started(*arguments, stdout=writer) as process:
        os.close(writer)
        first = await asyncio.to_thread(os.read, reader, 1)
        await asyncio.sleep(0.5)  # the pipe is full meanwhile
        rest = await asyncio.to_thread(read_to_end, reader)
        command = await asyncio.wait_for(ended(process), 30)

    assert (command.code, command.errors) == (0, ["reading t; Ctrl-C ends"])
    assert first + rest == (b"x" * 1_000 + b"\n") * 300


class NotText(str):
    """A name that is not UTF-8, as other clients send."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


async def send_with_names(servers: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Send one batch with aiokafka's encoder in Python; its native one encodes names by itself."""
    monkeypatch.setattr(message_accumulator, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
    async with AIOKafkaProducer(bootstrap_servers=servers) as client:
        batch = client.create_batch()
        for number, name in enumerate(names, start=1):
            batch.append(timestamp=None, key=None, value=b"v%d" % number, headers=[(name, b"x")])
        await (await client.send_batch(batch, "odd", partition=1))


@pytest.mark.parametrize("options", [(), ("--group", "g"), ("--max", "2")], ids=["", "in a group", "at most 2"])
async def test_header_name_that_is_not_text_is_one_line(
    cluster: FakeCluster, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records before it are shown; the line says which one it is."""
    cluster.create_topic("odd", 2)
    await send_with_names(cluster.bootstrap_servers, ["h", NotText("h"), "h"], monkeypatch)

    command = await run("tail", "odd", "-b", cluster.bootstrap_servers, "--from-beginning", *options)

    assert (command.code, command.output) == (1, "1:0\tnull\tv1\n")
    assert command.errors[1:] == [
        "the record of odd at partition 1, offset 1 cannot be read: the name of a header, 0xfffe, is not UTF-8"
    ]


async def test_slow_reader_does_not_hold_up_ctrl_c(cluster: FakeCluster) -> None:
    await send(cluster, *[b"x" * 1_000] * 200)
    reader, writer = os.pipe()
    async with started("tail", "t", "-b", cluster.bootstrap_servers, "--from-beginning", stdout=writer) as process:
        os.close(writer)
        await asyncio.to_thread(os.read, reader, 1)
        process.send_signal(signal.SIGINT)

        command = await asyncio.wait_for(ended(process), 30)
    os.close(reader)

    assert command.code == 0


async def test_broker_that_dies_is_told_and_its_return_too(cluster: FakeCluster) -> None:
    async with started("tail", "t", "-b", cluster.bootstrap_servers) as process:
        await reading(process)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        assert process.stderr is not None
        told = await asyncio.wait_for(process.stderr.readline(), 15)
        for node_id in (1, 2):
            await cluster.restart(node_id)
        await send(cluster, b"back")
        assert process.stdout is not None
        shown = await asyncio.wait_for(process.stdout.readline(), 15)

    assert told.startswith(b"aioproducer: ")
    assert shown == b"0:0\tk\tback\n"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["a b"], "topic 'a b' has the character ' '"),
        (["t", "-b", "localhost"], "'localhost' is not host:port"),
        (["t", "--group", ""], "--group must not be empty"),
        (["t", "--max", "0"], "Invalid value for '--max'"),
    ],
    ids=str,
)
def test_wrong_argument_is_said(arguments: list[str], said: str) -> None:
    ended_at_once = refused("tail", *arguments)

    assert ended_at_once.code == 2
    assert said in "\n".join(ended_at_once.errors)
