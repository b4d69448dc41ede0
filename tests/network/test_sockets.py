"""Options of a connection's real socket."""

import asyncio
import socket

import pytest

from aioproducer._network.connection import BrokerConnection
from aioproducer._network.context import NetworkSettings
from aioproducer.errors import BrokerConnectionError
from aioproducer.testing import FakeCluster
from tests.fakes.network import network_context, nothing


async def test_socket_keeps_nothing_back_and_looks_for_the_other_end(one_broker: FakeCluster) -> None:
    """A firewall forgets a quiet connection, and a record without acknowledgement would vanish in what is left."""
    host, port = one_broker.bootstrap_servers.split(":")
    transport, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(network_context(), "broker 1", nothing), host, int(port)
    )
    await connection.ready
    options = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY))
    found = [transport.get_extra_info("socket").getsockopt(*option) for option in options]
    connection.close(BrokerConnectionError("done"))
    await connection.closed

    assert all(found)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not of this system")
async def test_dead_peer_is_noticed_before_the_request_timeout(one_broker: FakeCluster) -> None:
    """A load balancer that has lost its backend says nothing; a broker that throttles this client may take nothing."""
    host, port = one_broker.bootstrap_servers.split(":")
    settings = NetworkSettings(request_timeout_ms=30_000)
    transport, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(network_context(settings), "broker 1", nothing), host, int(port)
    )
    await connection.ready
    tcp = transport.get_extra_info("socket")
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    idle_s, interval_s, probes = (tcp.getsockopt(socket.IPPROTO_TCP, name) for name in names)
    unacknowledged_ms = [tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)]
    connection.pause_until(asyncio.get_running_loop().time() + 60)
    unacknowledged_ms.append(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    connection.end_pause()
    unacknowledged_ms.append(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    connection.close(BrokerConnectionError("done"))
    await connection.closed

    assert idle_s + interval_s * probes < 30
    assert unacknowledged_ms == [24_000, 0, 24_000]
