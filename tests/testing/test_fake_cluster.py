"""`FakeCluster` as its users meet it: over TCP, with ports, deaths and returns, and frames in any pieces."""

import asyncio
import contextlib
import re
import struct
from collections.abc import Callable
from functools import partial

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, TopicRefusedError, Where
from aioproducer.testing.cluster_driver import FrameReader
from aioproducer.testing.kafka.server_properties import free_ports

API_VERSIONS = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes = API_VERSIONS) -> int:
        self.writer.write(request)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        answer = await self.reader.readexactly(size)
        return int(struct.unpack_from(">i", answer)[0])

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def connect(cluster: FakeCluster, node_id: int = 1) -> Client:
    host, port = cluster.bootstrap_servers.split(",")[node_id - 1].split(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def test_brokers_answer_on_their_ports() -> None:
    async with FakeCluster(2) as cluster:
        clients = [await connect(cluster, node) for node in (1, 2)]
        answers = [await client.ask() for client in clients]

        assert answers == [7, 7]
        assert cluster.connections == 2
        assert [(seen.api, seen.node_id) for seen in cluster.requests] == [(18, 1), (18, 2)]
        for client in clients:
            await client.close()


async def test_killed_broker_closes_port_and_connections() -> None:
    async with FakeCluster(2, topics={"t": 2}) as cluster:
        client = await connect(cluster)
        await client.ask()
        addresses = cluster.bootstrap_servers

        await cluster.kill(1)
        leaders = {cluster.leader_of("t", partition) for partition in (0, 1)}
        ended = await client.reader.read()
        with pytest.raises(ConnectionRefusedError):
            await connect(cluster)
        await cluster.restart(1)
        again = await connect(cluster)

        assert (ended, leaders, await again.ask(), cluster.bootstrap_servers) == (b"", {2}, 7, addresses)
        await client.close()
        await again.close()


async def test_frame_of_two_gigabytes_closes_the_connection() -> None:
    async with FakeCluster(1) as cluster:
        client = await connect(cluster)
        client.writer.write(struct.pack(">i", 2**31 - 1))

        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(client.reader.read(), 30) == b""
        await client.close()


async def test_removing_a_stall_lets_requests_go() -> None:
    async with FakeCluster(1) as cluster:
        client = await connect(cluster)
        stall = cluster.faults.stall(Where())
        answer = asyncio.ensure_future(client.ask())
        done, _ = await asyncio.wait([answer], timeout=0.05)

        cluster.faults.remove(stall)

        assert (done, await asyncio.wait_for(answer, 30)) == (set(), 7)
        await client.close()


async def test_ports_can_be_given() -> None:
    """One that is taken is an error, and nothing stays open."""
    async with FakeCluster(1) as cluster:
        port = int(cluster.bootstrap_servers.split(":")[1])

        with pytest.raises(OSError, match="address already in use"):
            await FakeCluster(2, ports=[0, port]).start()


@pytest.mark.parametrize("turns", range(12))
async def test_cancelled_start_leaves_no_port_and_can_be_repeated(turns: int) -> None:
    """This holds for a cancellation at any point."""
    (port,) = free_ports(1)
    cluster = FakeCluster(2, ports=[port, 0])
    starting = asyncio.create_task(cluster.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    if starting.cancel():
        await asyncio.wait([starting])
    else:
        await cluster.stop()

    async with cluster:
        client = await connect(cluster)
        assert await client.ask() == 7
        await client.close()


async def test_topics_come_and_go() -> None:
    async with FakeCluster(3, min_insync_replicas=2) as cluster:
        cluster.create_topic("t", 2, configs={"max.message.bytes": "2000"})
        with pytest.raises(TopicRefusedError, match="already exists"):
            cluster.create_topic("t")
        assert (cluster.end_offset("t", 1), cluster.high_watermark("t", 1), cluster.records("t", 1)) == (0, 0, [])

        cluster.delete_topic("t")

        with pytest.raises(LookupError, match="no topic 't'"):
            cluster.leader_of("t", 0)


@pytest.mark.parametrize("options", [{"nodes": 0}, {"nodes": 2, "ports": [0]}, {"profile": "0.8"}])
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least one|ports|profile"):
        FakeCluster(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options,said",
    [
        ({"transaction_version": 7}, "Kafka 4.4.0 has transaction.version 0 to 2, not 7"),
        ({"transaction_version": "2"}, "transaction_version must be an int or None, not str"),
        ({"num_partitions": 0}, "num_partitions must be between 1 and 999999, not 0"),
        ({"min_insync_replicas": "2"}, "min_insync_replicas must be an int, not str"),
        ({"marker_delay_s": "1"}, "marker_delay_s must be a number of seconds, not str"),
        ({"auto_create_topics": "no"}, "auto_create_topics must be a bool, not str"),
        ({"metrics_subscription": {}}, "metrics_subscription must be a MetricsSubscription, not dict"),
        ({"clock": 5}, "clock must be a function that returns ms since 1970, not int"),
        ({"topics": {"t": 20_000_000}}, "topics['t'] must be 1 to 999999, or -1 for num_partitions, not 20000000"),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [FakeCluster, FakeCluster.in_thread], ids=["", "in a thread"])
def test_wrong_option_is_refused_where_it_is_given(
    make: Callable[..., object], options: dict[str, object], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        make(1, **options)


async def test_too_many_partitions_are_refused_at_once() -> None:
    """Their creation would hold up every client for as long."""
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        for count in (1_000_000, 20_000_000, 2**31 - 1):
            with pytest.raises(TopicRefusedError, match=f"was set to {count}; a topic here may have 999999") as refused:
                cluster.create_topic("big", count)
            assert refused.value.code == ErrorCode.INVALID_PARTITIONS
            with pytest.raises(TopicRefusedError, match="a topic here may have 999999"):
                cluster.model.topics.add_partitions(cluster.model.topics.named("t"), count)  # type: ignore[arg-type]


async def test_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with FakeCluster"):
        _ = FakeCluster().bootstrap_servers


async def test_second_start_is_refused() -> None:
    """Otherwise the first ports would be forgotten and never closed."""
    async with FakeCluster(1) as cluster:
        address = cluster.bootstrap_servers
        with pytest.raises(RuntimeError, match="started already"):
            await cluster.start()
        assert cluster.bootstrap_servers == address

    with pytest.raises(ConnectionRefusedError):
        await connect(cluster)


async def test_stopped_cluster_can_be_read_and_restarted() -> None:
    cluster = FakeCluster(1, topics={"t": 1})
    for _ in range(2):
        await cluster.start()
        stall = cluster.faults.stall(Where())
        await cluster.stop()

        assert (cluster.end_offset("t", 0), cluster.records("t", 0)) == (0, [])
        cluster.faults.remove(stall)
        for act in (cluster.restart, cluster.kill):
            with pytest.raises(RuntimeError, match="not running"):
                await act(1)


async def test_stop_leaves_no_connection() -> None:
    cluster = FakeCluster(2)
    await cluster.start()
    client = await connect(cluster, 2)
    await client.ask()

    await cluster.stop()

    assert await client.reader.read() == b""
    await client.close()


def test_uvloop_runs_it_too() -> None:
    async def story() -> list[int]:
        async with FakeCluster(2) as cluster:
            first = await connect(cluster)
            answers = [await first.ask()]
            await cluster.kill(1)
            await cluster.restart(1)
            second = await connect(cluster)
            answers.append(await second.ask())
            await first.close()
            await second.close()
            return answers

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(story()) == [7, 7]


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"topics": {"t": 0}}, ValueError, "topics['t'] must be 1 to 999999, or -1 for num_partitions, not 0"),
        ({"topics": {"t": "1"}}, TypeError, "topics['t'] must be an int, its partitions, not str"),
        ({"topics": {"bad t": 1}}, ValueError, "topic 'bad t' has the character"),
        ({"topics": ["t"]}, TypeError, "topics must be a mapping of names to numbers of partitions, not list"),
        ({"racks": ["a"]}, TypeError, "racks must be a mapping of node ids to names, not list"),
        ({"racks": {1: None}}, TypeError, "racks[1] must be a str, not NoneType"),
        ({"racks": {2: "a", 0: "b"}}, ValueError, "racks names the node 0; the nodes are 1 to"),
        ({"racks": {"1": "a"}}, ValueError, "racks names the node '1'; the nodes are 1 to"),
        ({"num_partition": 1}, TypeError, "FakeCluster has no option 'num_partition'; did you mean 'num_partitions'?"),
        ({"colour": 1}, TypeError, "FakeCluster has no option 'colour'; there are cluster_id, "),
    ],
)
def test_what_no_cluster_can_be_is_refused_by_the_constructor(
    options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        FakeCluster(**options)  # type: ignore[arg-type]


async def test_broker_that_does_not_exist_is_named() -> None:
    async with FakeCluster(2, topics={"t": 1}) as cluster:
        for act in (cluster.kill, cluster.restart):
            with pytest.raises(LookupError, match="no broker 9: node_id must be 1 to 2"):
                await act(9)
        for change in (
            partial(cluster.move_leader, "t", 0),
            partial(cluster.move_coordinator, "key"),
            cluster.hold_replication,
        ):
            with pytest.raises(LookupError, match="no broker 9: node_id must be 1 to 2"):
                change(9)


@pytest.mark.parametrize(
    "code, where, kind, message",
    [
        ("x", Where(), TypeError, "code must be an ErrorCode or an int, not str"),
        (True, Where(), TypeError, "code must be an ErrorCode or an int, not bool"),
        (2**15, Where(), ValueError, "code must be between -32768 and 32767, not 32768"),
        (7, ApiKey.PRODUCE, TypeError, "where must be a Where, not ApiKey"),
        (ErrorCode.REQUEST_TIMED_OUT, None, TypeError, "where must be a Where, not NoneType"),
    ],
)
async def test_fault_that_cannot_be_is_refused_where_it_is_laid_down(  # noqa: PLR0917  # one row
    code: object, where: object, kind: type[Exception], message: str
) -> None:
    """The test fails at its own line, not inside a broker at the request."""
    async with FakeCluster(1) as cluster:
        for lay_down in (cluster.faults.error, cluster.faults.error_after_append):
            with pytest.raises(kind, match=message):
                lay_down(code, where)  # type: ignore[arg-type]

        client = await connect(cluster)
        assert await client.ask() == 7
        await client.close()


def feed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[bytes]:
    frames = []
    while data:
        room = reader.room()
        size = min(sizes.pop(0) if sizes else len(data), len(room), len(data))
        room[:size] = data[:size]
        frames += [bytes(frame) for frame in reader.received(size)]
        data = data[size:]
    return frames


@given(
    st.lists(st.integers(0, 40_000) | st.sampled_from([16_383, 16_384, 300_000]), max_size=6),
    st.lists(st.integers(1, 50_000), max_size=30),
)
def test_any_split_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    frames = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)

    assert feed(FrameReader(1_000_000), stream, pieces) == frames


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_impossible_size_is_refused_at_its_four_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        feed(FrameReader(1000), struct.pack(">i", size), [])
