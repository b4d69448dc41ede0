"""A broker is ready when it accepts requests and knows its cluster."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence

import pytest

from aioproducer.testing.kafka.broker_requests import ClusterView, ask_for_cluster
from aioproducer.testing.kafka.server_properties import free_ports

HOST = "127.0.0.1"
ACCEPTS = struct.pack(">ihi", 18, 0, 0)  # correlation id, error code, no API keys


def metadata(controller_id: int) -> bytes:
    brokers = struct.pack(">ih4siH1s", 1, 4, b"host", 9092, 1, b"r") + struct.pack(">ih1sih", 2, 1, b"h", 9093, -1)
    return struct.pack(">ii", 3, 2) + brokers + struct.pack(">ii", controller_id, 0)


@contextlib.asynccontextmanager
async def server(answers: Sequence[bytes]) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            for answer in answers:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
                writer.write(struct.pack(">i", len(answer)) + answer)
        writer.close()

    listening = await asyncio.start_server(serve, HOST, 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_ready_broker_tells_of_its_cluster() -> None:
    async with server([ACCEPTS, metadata(2)]) as port:
        assert await ask_for_cluster(HOST, port) == ClusterView(brokers=2, controller_id=2)


@pytest.mark.parametrize(
    "answers",
    [[], [struct.pack(">ihi", 18, 35, 0)], [ACCEPTS], [ACCEPTS, metadata(2)[:9]], [ACCEPTS, b""], [b"H"]],
    ids=["closes", "refuses", "closes-later", "half-an-answer", "empty-answer", "no-kafka"],
)
async def test_broker_that_does_not_answer_yet_is_not_ready(answers: list[bytes]) -> None:
    """It causes neither an error nor a hang: the caller polls again later."""
    async with server(answers) as port:
        assert await ask_for_cluster(HOST, port) is None


async def test_nobody_listening_is_not_ready() -> None:
    assert await ask_for_cluster(HOST, free_ports(1)[0]) is None
