"""`aioproducer produce` as a process: with a cluster and its failures, without a broker, and after a signal."""

import asyncio
import os
import pty
import re
import signal
import socket
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster
from tests.cli.commands import PROGRAM, TIMEOUT_S, arrival, ended, feed, refused, run, started, values
from tests.fakes.wrong_servers import dead_port

pytestmark = [pytest.mark.slow, pytest.mark.timing]  # each starts a process


async def test_lines_of_files_and_standard_input_are_sent_in_order(cluster: FakeCluster, tmp_path: Path) -> None:
    """An empty line is an empty value, CR is part of the line end, the last line needs none."""
    (tmp_path / "a").write_bytes(b"1\r\n\n\xff\n")
    (tmp_path / "b").write_bytes(b"2\n3")

    command = await run(
        "produce", "t", f"{tmp_path}/a", "-", f"{tmp_path}/b", "-b", cluster.bootstrap_servers, stdin=b"x"
    )

    assert values(cluster) == [b"1", b"", b"\xff", b"x", b"2", b"3"]
    assert command.code == 0
    assert command.errors[0].startswith("6 records delivered to t in ")


async def test_key_headers_and_partition(cluster: FakeCluster) -> None:
    cluster.create_topic("wide", 5)
    headers = ["--header", "a=1", "--header", "a=b=c", "--header", "e="]

    command = await run(
        *f"produce wide -b {cluster.bootstrap_servers} --format jsonl --key id --partition 0".split(),
        *headers,
        stdin=b'{"id": 7}\n{"id": null}',
    )

    assert command.code == 0
    first, second = cluster.records("wide", 0)
    assert (first.key, second.key) == (b"7", None)
    assert list(first.headers) == [("a", b"1"), ("a", b"b=c"), ("e", b"")]


async def test_csv_has_a_header_in_each_file(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n1,x\n")
    (tmp_path / "b.csv").write_text("n,id\ny,2\n")

    command = await run(
        *f"produce t {tmp_path}/a.csv {tmp_path}/b.csv --format csv --key id -b {cluster.bootstrap_servers}".split()
    )

    assert command.code == 0
    assert [record.key for record in cluster.records("t", 0)] == [b"1", b"2"]


async def test_empty_input_is_no_failure(cluster: FakeCluster) -> None:
    command = await run("produce", "t", "-b", cluster.bootstrap_servers)

    assert (command.code, command.output) == (0, "")
    assert command.errors[0].startswith("0 records delivered to t")


async def test_what_is_typed_is_sent_at_once(cluster: FakeCluster) -> None:
    async with started("produce", "t", "-b", cluster.bootstrap_servers) as process:
        await feed(process, b"a\nb\nc")
        await arrival(cluster, 2)

        command = await ended(process, b"")

    assert command.code == 0
    assert values(cluster) == [b"a", b"b", b"c"]


async def test_input_that_has_nothing_now_has_not_ended(cluster: FakeCluster) -> None:
    """A parent on asyncio or Node leaves O_NONBLOCK on its pipes."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    async with started("produce", "t", "-b", cluster.bootstrap_servers, stdin=reader) as process:
        os.close(reader)
        os.write(writer, b"one\n")
        await arrival(cluster, 1)
        await asyncio.sleep(0.2)
        os.write(writer, b"two\nthree")
        os.close(writer)
        command = await asyncio.wait_for(ended(process), 30)

    assert values(cluster) == [b"one", b"two", b"three"]
    assert (command.code, command.errors[0][:19]) == (0, "3 records delivered")


async def test_rate_is_a_limit(cluster: FakeCluster) -> None:
    command = await run("produce", "t", "-b", cluster.bootstrap_servers, "--rate", "20", stdin=b"\n" * 11)

    assert float(command.errors[0].split()[-2]) >= 0.5


BAD_JSON = b'{"a":1}\n{"a":2}\nnot\n{"a":3}\nworse\n'


async def test_bad_line_ends_the_run_and_what_was_before_is_delivered(cluster: FakeCluster) -> None:
    command = await run("produce", "t", "-b", cluster.bootstrap_servers, "--format", "jsonl", stdin=BAD_JSON)

    assert command.code == 1
    assert values(cluster) == [b'{"a":1}', b'{"a":2}']
    assert command.errors[0] == "standard input:3: not JSON: Expecting value at character 1"
    assert command.errors[2] == "everything up to standard input:2 was delivered"


async def test_bad_lines_are_skipped_on_request(cluster: FakeCluster) -> None:
    command = await run(
        "produce", "t", "-b", cluster.bootstrap_servers, "--format", "jsonl", "--skip-bad-lines", stdin=BAD_JSON
    )

    assert command.code == 1
    assert values(cluster) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert command.errors[0].startswith("standard input:3,5: skipped, 2 records: not JSON; the first: not JSON: ")


async def test_line_longer_than_a_record_may_be(cluster: FakeCluster) -> None:
    long = b"x" * 5_000
    command = await run(
        *f"produce t -b {cluster.bootstrap_servers} --property max.request.size=1000 --skip-bad-lines".split(),
        stdin=b"a\n" + long + b"\nb\n" + b"y" * 999 + b"\nc\n",
    )

    assert command.code == 1
    assert values(cluster) == [b"a", b"b", b"c"]
    assert [line.partition(":")[2].partition(" ")[0] for line in command.errors[:2]] == ["2:", "4:"]
    assert "max.request.size" in command.errors[0]


async def test_record_that_the_broker_refuses_is_named(cluster: FakeCluster) -> None:
    cluster.create_topic("small", 1, configs={"max.message.bytes": "1000"})

    command = await run(
        *f"produce small -b {cluster.bootstrap_servers} --skip-bad-lines --property batch.size=0".split(),
        stdin=b"a\n" + b"x" * 2_000 + b"\nb\n",
    )

    assert command.code == 1
    assert values(cluster, "small") == [b"a", b"b"]
    assert command.errors[0].startswith("standard input:2: skipped, ")


def test_everything_asked_wrongly_is_said_at_once(tmp_path: Path) -> None:
    arguments = f"t {tmp_path}/gone {tmp_path} -b h:1 --key id --rate 0 --header x --property linger.mss=5"

    command = refused("produce", *arguments.split())

    assert command.code == 2
    assert command.errors == [
        f"{tmp_path}/gone: no such file or directory",
        f"{tmp_path}: is a directory",
        "--header 'x': not like NAME=VALUE",
        "--key needs --format jsonl or csv: a plain line has no fields",
        "--rate 0: must be above 0",
        "there is no option 'linger.mss'; did you mean 'linger.ms'?",
    ]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["t", "-b", "localhost"], "'localhost' is not host:port"),
        (["a b", "-b", "h:1"], "topic 'a b' has the character ' '"),
        (["t", "-b", "h:1", "--property", "linger.ms=soon"], "linger_ms"),
        (["t", "-b", "h:1", "--property", "bootstrap.servers=h:1"], "use --bootstrap-server"),
        (["t", "-b", "h:1", "-X", "transactional.id=x"], "--property transactional.id: use --transactional-id"),
        (["t", "-b", "h:1", "-X", "transactional_id=x", "--transactional"], "use --transactional-id"),
        (["t", "-b", "h:1", "--transactional", "--transactional-id", ""], "transactional_id"),
        (["t", "-b", "h:1", "-X", "group_id=x"], "--property group_id: it is an option of consumers"),
        (["t", "-b", "h:1", "-X", "schema.registry.url=x"], "--property schema.registry.url: it is an option of"),
        (["t", "-b", "h:1", "-X", "value.serializer=x"], "--property value.serializer: keys and values are sent as"),
        (["t", "-b", "h:1", "--drain-timeout", "-1"], "--drain-timeout -1"),
        (["t", "", "-b", "h:1"], "'': no such file or directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_argument_is_one_line(arguments: list[str], said: str) -> None:
    command = refused("produce", *arguments)

    assert command.code == 2
    assert len(command.errors) == 1
    assert said in command.errors[0]


async def test_key_that_no_column_has_is_asked_wrongly(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n1,x\n")
    (tmp_path / "b.csv").write_text("od,n\n2,y\n")
    arguments = f"-b {cluster.bootstrap_servers} --format csv --key id --skip-bad-lines".split()

    first = await run("produce", "t", f"{tmp_path}/b.csv", *arguments)
    nothing = values(cluster)
    later = await run("produce", "t", f"{tmp_path}/a.csv", f"{tmp_path}/b.csv", *arguments)

    assert (first.code, nothing) == (2, [])
    assert "'id' is not among od, n" in first.errors[0]
    assert (later.code, values(cluster)) == (1, [b'{"id":"1","n":"x"}'])


@pytest.mark.parametrize(
    "header", [b"id,\xe9", b'id,"a"b', b"id," + b"x" * 3_000, b'id,"t'], ids=lambda header: header[:8]
)
async def test_header_that_is_no_use_is_not_skipped(cluster: FakeCluster, header: bytes) -> None:
    lines = header + b"\n1,2\n3,4\n"
    limit = ("--property", "max.request.size=2000")
    arguments = ("-b", cluster.bootstrap_servers, "--format", "csv", "--skip-bad-lines", *limit)

    command = await run("produce", "t", *arguments, stdin=lines)

    assert (command.code, values(cluster)) == (1, [])
    assert "skipped" not in command.errors[0]


async def test_partition_that_is_not_there_is_one_line(cluster: FakeCluster) -> None:
    command = await run("produce", "t", "-b", cluster.bootstrap_servers, "--partition", "1", stdin=b"a\n")

    assert (command.code, command.errors) == (2, ["--partition 1: topic t has partitions 0 to 0"])


@pytest.mark.parametrize("shorter", [[], ["-X", "socket.connection.setup.timeout.max.ms=3000"]])
async def test_wrong_address_is_known_in_a_bounded_time(shorter: list[str]) -> None:
    """The command's own time to connect gives way to a shorter one that is given."""
    async with dead_port() as address:
        command = await run("produce", "t", "-b", address, "-X", "max.block.ms=500", *shorter, stdin=b"a\n")

    assert command.code == 1
    assert len(command.errors) == 1
    assert address in command.errors[0]
    assert "refused" in command.errors[0]


async def test_topic_that_nobody_makes_is_one_line() -> None:
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        command = await run(
            *f"produce gone -b {cluster.bootstrap_servers} --property max.block.ms=500".split(), stdin=b"a\n"
        )

    assert command.code == 1
    assert len(command.errors) == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in command.errors[0]


async def test_leader_that_dies_costs_nothing(cluster: FakeCluster, tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(3_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    cluster.create_topic("pair", 1, replication_factor=2)

    async with started(*f"produce pair {tmp_path}/lines -b {cluster.bootstrap_servers} --rate 2000".split()) as process:
        await arrival(cluster, 500, "pair")
        await cluster.kill(cluster.leader_of("pair", 0))

        command = await ended(process)

    assert command.code == 0
    assert values(cluster, "pair") == lines


async def test_failed_delivery_ends_the_run(cluster: FakeCluster) -> None:
    arguments = "--property delivery.timeout.ms=600 --property request.timeout.ms=500 --property linger.ms=0"
    async with started("produce", "t", "-b", cluster.bootstrap_servers, *arguments.split()) as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        await feed(process, b"b\nc\n")  # standard input stays open: the failure alone ends it

        assert process.stderr is not None
        errors = (await asyncio.wait_for(process.stderr.read(), 15)).decode().splitlines()
        await process.wait()

    assert process.returncode == 1
    assert errors[0].startswith("aioproducer: standard input:2-3: 2 records: DeliveryTimeoutError")
    assert errors[-1] == "aioproducer: everything up to standard input:1 was delivered"


# After a signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_delivers_what_was_accepted(cluster: FakeCluster, number: signal.Signals) -> None:
    arguments = "--property linger.ms=3600000 --property delivery.timeout.ms=7200000 --property batch.size=1000"
    fills_a_batch = b"x" * 2_000
    async with started("produce", "t", "-b", cluster.bootstrap_servers, *arguments.split()) as process:
        await feed(process, fills_a_batch + b"\na\nb\nc")
        await arrival(cluster, 1)
        process.send_signal(number)

        command = await ended(process)

    assert values(cluster) == [fills_a_batch, b"a", b"b"]
    assert command.code == 128 + number
    assert command.errors[-2].startswith("interrupted: 3 records delivered to t")
    assert command.errors[-1] == "everything up to standard input:3 was delivered"


async def test_hang_up_is_ignored_under_nohup(cluster: FakeCluster) -> None:
    shell = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    command = [*PROGRAM, "produce", "t", "-b", cluster.bootstrap_servers]
    process = await asyncio.create_subprocess_exec(*shell, *command, stdin=asyncio.subprocess.PIPE)
    await feed(process, b"a\n")
    await arrival(cluster, 1)
    process.send_signal(signal.SIGHUP)

    await asyncio.wait_for(process.communicate(b"b\n"), TIMEOUT_S)

    assert (process.returncode, values(cluster)) == (0, [b"a", b"b"])


async def test_wait_after_a_signal_is_bounded(cluster: FakeCluster) -> None:
    arguments = ["--drain-timeout", "0.3"]
    async with started("produce", "t", "-b", cluster.bootstrap_servers, *arguments) as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        await feed(process, b"b\nc\n")
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)

        command = await ended(process)

    assert command.code == 130
    assert command.errors[1].startswith("2 records: ")
    assert command.errors[2].startswith("standard input:2-3: 2 records: not acknowledged before the command ended")
    assert command.errors[-1] == "everything up to standard input:1 was delivered"


async def test_second_signal_ends_at_once(cluster: FakeCluster) -> None:
    async with started("produce", "t", "-b", cluster.bootstrap_servers, "--drain-timeout", "600") as process:
        await feed(process, b"a\n")
        await arrival(cluster, 1)
        for node_id in (1, 2):
            await cluster.kill(node_id)
        await feed(process, b"b\n")
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        await process.stderr.readuntil(b"a second signal stops immediately\n")
        process.send_signal(signal.SIGINT)

        command = await asyncio.wait_for(ended(process), 30)

    assert command.code == 130
    assert command.errors[-1] == "everything up to standard input:1 was delivered"


async def test_signal_while_connecting_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with started("produce", "t", "-b", f"127.0.0.1:{silent.getsockname()[1]}") as process:
            assert process.stderr is not None
            await process.stderr.readuntil(b"at most\n")
            process.send_signal(signal.SIGINT)

            command = await asyncio.wait_for(ended(process), 30)

    assert command.code == 130


async def test_narrow_terminal_gets_one_line_of_figures(cluster: FakeCluster) -> None:
    terminal, stderr = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "40", "LINES": "24"}
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "produce", "t", "-b", cluster.bootstrap_servers,
        stdin=asyncio.subprocess.PIPE, stderr=stderr, env=environment,
    )  # fmt: skip
    os.close(stderr)
    await feed(process, b"a\nb\nc\n")
    await arrival(cluster, 3)
    await asyncio.sleep(0.5)  # two updates
    assert process.stdin is not None
    process.stdin.close()
    code = await asyncio.wait_for(process.wait(), TIMEOUT_S)
    shown = os.read(terminal, 65_536).decode()
    os.close(terminal)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()
    progress = [line for line in lines if line and not line.startswith("aioproducer:")]
    assert code == 0
    assert progress[-1].startswith("3 delivered"), lines
    assert max(map(len, progress)) <= 40, lines


async def test_refused_connection_is_told_at_once_and_tried_again() -> None:
    """The broker may be just starting; else the user has the address wrong and need not wait to see it."""
    async with dead_port() as address:
        port = int(address.rpartition(":")[2])
    async with started("produce", "t", "-b", address, "-X", "max.block.ms=300000") as process:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        async with FakeCluster(1, topics={"t": 1}, ports=[port]) as cluster:
            await process.communicate(b"a\n")
            values = [record.value for record in cluster.records("t", 0)]

    assert line.startswith(f"aioproducer: waiting for t on {address}, 300 s at most: ")
    assert "Connection refused" in line
    assert (process.returncode, values) == (0, [b"a"])
