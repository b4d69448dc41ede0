"""Ports on loopback that are free now and stay free: outside the range the system gives to outgoing connections.

A port the system picks (port 0) may go to somebody's outgoing connection while its broker restarts; these do not.
"""

import random
import socket

from aioproducer.broker.server_properties import LOOPBACK

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below Linux's ephemeral range (32768-60999) and macOS's (49152-65535), above the ports of well-known services."""


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT), LAST_PORT - FIRST_PORT):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now; a port we may not use counts as taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
