"""Options of a connection's real socket."""

import asyncio
import socket

from aioproducer._network.connection import BrokerConnection
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
