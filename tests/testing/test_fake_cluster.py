"""`FakeCluster` as its users meet it: over TCP, with ports, deaths and returns."""

import asyncio
import contextlib
import struct

import pytest
import uvloop

from aioproducer.testing import ApiKey, FakeCluster, TopicRefusedError, Where

API_VERSIONS = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1)


class Client:
    """A raw connection to one broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes = API_VERSIONS) -> int:
        """Send bytes, read one answer; returns its correlation id."""
        self.writer.write(request)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        answer = await self.reader.readexactly(size)
        return int(struct.unpack_from(">i", answer)[0])

    async def close(self) -> None:
        """Close the socket, whatever became of it."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def connect(cluster: FakeCluster, node_id: int = 1) -> Client:
    """Connect to a broker."""
    host, port = cluster.bootstrap_servers.split(",")[node_id - 1].split(":")
    return Client(*await asyncio.open_connection(host, int(port)))


async def test_brokers_answer_on_their_ports() -> None:
    """Each has one of its own; connections and requests are counted."""
    async with FakeCluster(2) as cluster:
        clients = [await connect(cluster, node) for node in (1, 2)]
        answers = [await client.ask() for client in clients]

        assert answers == [7, 7]
        assert cluster.connections == 2
        assert [(seen.api, seen.node_id) for seen in cluster.requests] == [(18, 1), (18, 2)]
        for client in clients:
            await client.close()


async def test_killed_broker_closes_port_and_connections() -> None:
    """And comes back on the same port."""
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
    """At its size, not when the memory is full."""
    async with FakeCluster(1) as cluster:
        client = await connect(cluster)
        client.writer.write(struct.pack(">i", 2**31 - 1))

        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(client.reader.read(), 30) == b""
        await client.close()


async def test_removing_a_stall_lets_requests_go() -> None:
    """Without any other event to wake the brokers."""
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


async def test_topics_come_and_go() -> None:
    """Made by the test, deleted by the test."""
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
    """Before anything is opened."""
    with pytest.raises(ValueError, match=r"at least one|ports|profile"):
        FakeCluster(**options)  # type: ignore[arg-type]


async def test_not_started_says_so() -> None:
    """With the line that starts it."""
    with pytest.raises(RuntimeError, match="async with FakeCluster"):
        _ = FakeCluster().bootstrap_servers


async def test_stop_leaves_no_connection() -> None:
    """Clients see the end of the stream."""
    cluster = FakeCluster(2)
    await cluster.start()
    client = await connect(cluster, 2)
    await client.ask()

    await cluster.stop()

    assert await client.reader.read() == b""
    await client.close()


def test_uvloop_runs_it_too() -> None:
    """Start, answer, kill, restart, answer, stop."""

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
