"""The proxy carries bytes as they are, and each trouble does what it says."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from aioproducer.testing.kafka.server_properties import free_ports
from tests.programs.chaos.proxy import (
    LOOPBACK,
    Link,
    at_most,
    delays,
    half_open,
    in_single_bytes,
    loses_one_way,
    resets_every,
)

MESSAGE = random.Random(1).randbytes(300_000)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Heard:
    """Requests to the echo behind a link, and their responses."""

    def __init__(self, link: Link) -> None:
        self.link = link

    async def say(self, message: bytes, patience_s: float = 5.0) -> bytes:
        """Everything that comes back until all is there, the connection ends, or patience does."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.link.port)
        heard = b""
        try:
            writer.write(message)
            async with asyncio.timeout(patience_s):
                while len(heard) < len(message) and (data := await reader.read(65_536)):
                    heard += data
        except (TimeoutError, ConnectionError):
            return heard
        finally:
            writer.transport.abort()
        return heard


@pytest.fixture
async def behind() -> AsyncIterator[Heard]:
    port, target = free_ports(2)
    server = await asyncio.start_server(echo, LOOPBACK, target)
    link = Link(port, target, "seed")
    await link.open()
    yield Heard(link)
    await link.close()
    server.close()


async def test_everything_arrives_as_it_was(behind: Heard) -> None:
    assert await behind.say(MESSAGE) == MESSAGE


async def test_single_bytes_arrive_as_they_were(behind: Heard) -> None:
    behind.link.trouble = in_single_bytes

    assert await behind.say(MESSAGE[:10_000]) == MESSAGE[:10_000]


@pytest.mark.parametrize("trouble", [delays(0.01, 0.01), at_most(10_000_000)], ids=["delay", "thin line"])
async def test_slow_lines_lose_nothing(behind: Heard, trouble: object) -> None:
    behind.link.trouble = trouble  # type: ignore[assignment]

    assert await behind.say(MESSAGE) == MESSAGE


async def test_connection_is_reset_after_so_many_bytes(behind: Heard) -> None:
    behind.link.trouble = resets_every(16)

    heard = await behind.say(MESSAGE)

    assert len(heard) < 24 * 1024
    assert MESSAGE.startswith(heard)


@pytest.mark.parametrize(
    "trouble",
    [half_open, loses_one_way(answers=True), loses_one_way(answers=False)],
    ids=["both ways", "answers", "requests"],
)
async def test_half_open_connection_answers_nothing_and_stays(behind: Heard, trouble: object) -> None:
    """Also when the trouble is over: swallowed bytes stay missing. New connections work."""
    reader, writer = await asyncio.open_connection(LOOPBACK, behind.link.port)
    behind.link.trouble = trouble  # type: ignore[assignment]
    writer.write(b"a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await reader.read(1)
    behind.link.trouble = in_single_bytes

    writer.write(b"b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await reader.read(1)
    writer.transport.abort()

    assert await behind.say(b"c") == b"c"


async def test_link_that_refuses_keeps_what_it_has(behind: Heard) -> None:
    await behind.link.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOOPBACK, behind.link.port)

    await behind.link.open()

    assert await behind.say(b"a") == b"a"


async def test_connection_to_a_dead_broker_is_reset() -> None:
    port, target = free_ports(2)
    link = Link(port, target, "seed")
    await link.open()

    assert await Heard(link).say(b"a") == b""

    await link.close()
