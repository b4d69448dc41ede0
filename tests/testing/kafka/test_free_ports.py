"""Ports that are free now, and that the system does not give to other connections."""

import socket

from aioproducer.testing.kafka.server_properties import FIRST_PORT, LAST_PORT, free_ports, is_free


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
