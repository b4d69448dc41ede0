"""The settings of the nodes of a loopback cluster, and free ports for them."""

import socket
from pathlib import Path

import pytest

from aioproducer.testing.kafka.server_properties import (
    FIRST_PORT,
    LAST_PORT,
    NodePorts,
    ProxiedPorts,
    free_ports,
    is_free,
    properties_text,
    server_properties,
)

ONE = [NodePorts(1, 20_001, 20_002)]
THREE = [NodePorts(node, 20_000 + node, 21_000 + node) for node in (1, 2, 3)]


@pytest.mark.parametrize("quorum, replicas, in_sync", [(ONE, "1", "1"), (THREE, "3", "2")], ids=["one", "three"])
def test_replication_follows_the_number_of_nodes(quorum: list[NodePorts], replicas: str, in_sync: str) -> None:
    properties = server_properties(quorum[0], quorum, Path("/log"))

    assert properties["default.replication.factor"] == replicas
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.min.isr"] == in_sync
    assert properties["min.insync.replicas"] == in_sync


def test_every_node_knows_the_whole_quorum() -> None:
    """A static one, which Kafka 3.9 and 4.x take alike."""
    properties = [server_properties(node, THREE, Path("/log")) for node in THREE]

    voters = "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"
    assert {node["controller.quorum.voters"] for node in properties} == {voters}
    assert [node["advertised.listeners"] for node in properties] == [
        f"PLAINTEXT://127.0.0.1:{node.broker_port}" for node in THREE
    ]


def test_everything_listens_on_loopback_alone() -> None:
    """Other machines on the network cannot reach a test broker."""
    listeners = server_properties(ONE[0], ONE, Path("/log"))["listeners"]

    assert listeners == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"


def test_clients_that_come_through_a_proxy_are_told_its_port() -> None:
    """Brokers among themselves, and clients that come directly, go past it."""
    node = NodePorts(1, 20_001, 20_002, ProxiedPorts(20_003, 20_004))

    properties = server_properties(node, [node], Path("/log"))

    assert properties["listeners"] == (
        "PLAINTEXT://127.0.0.1:20001,PROXIED://127.0.0.1:20003,CONTROLLER://127.0.0.1:20002"
    )
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,PROXIED://127.0.0.1:20004"
    assert properties["listener.security.protocol.map"] == (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT"
    )


def test_properties_text_has_a_line_each() -> None:
    assert properties_text({"node.id": "1", "log.dirs": "/tmp/x"}) == "node.id=1\nlog.dirs=/tmp/x\n"


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(6)

    assert len(set(ports)) == 6
    assert all(FIRST_PORT <= port < LAST_PORT and is_free(port) for port in ports)


def test_promised_ports_are_left_out() -> None:
    """A proxy in front of a broker begins to listen when the broker has its ports."""
    promised = range(FIRST_PORT, LAST_PORT - 100)

    assert not {*promised} & {*free_ports(6, besides=promised)}


def test_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
