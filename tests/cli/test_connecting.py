"""Commands that meet no broker wait alike: one line that says so, and the reason at the end."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from tests.fakes.wrong_servers import dead_port

pytestmark = [pytest.mark.slow, pytest.mark.timing]

PROGRAM = """
from aioproducer.cli import connecting
connecting.CONNECT_TIMEOUT_S, connecting.HINT_AFTER_S = 3.0, 0.2
from aioproducer.cli.main import app
app()
"""
COMMANDS = (
    ["produce", "t", "-X", "max.block.ms=3000", "-X", "socket.connection.setup.timeout.ms=500"],
    ["tail", "t"],
    ["txn", "list"],
    ["txn", "describe", "billing-1"],
    ["txn", "abort", "billing-1"],
)


@pytest.fixture
async def silent_port() -> AsyncIterator[str]:
    asleep = asyncio.Event()

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asleep.wait()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield f"{host}:{port}"
    asleep.set()
    server.close()


async def said(command: list[str], address: str) -> tuple[int | None, list[str]]:
    """Exit code and lines on standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *command, "-b", address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode().splitlines()


async def check(address: str, reasons: tuple[str, ...]) -> None:
    for code, lines in await asyncio.gather(*(said(command, address) for command in COMMANDS)):
        assert code == 1
        assert len(lines) == 2, lines
        assert lines[0].startswith("aioproducer: waiting for ")
        assert ", 3 s at most" in lines[0]
        assert address in lines[0]
        assert " 3 s: " in lines[1]
        assert address in lines[1]
        assert any(reason in lines[1] for reason in reasons), lines


async def test_refused_port() -> None:
    async with dead_port() as address:
        await check(address, ("Connection refused",))


async def test_silent_port(silent_port: str) -> None:
    """The reason is there although no attempt was refused."""
    await check(silent_port, ("no Kafka broker has answered there", "no answer within", "handshake"))
