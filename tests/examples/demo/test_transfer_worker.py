"""The worker of the demo of transactions ends with the demo, also without brokers."""

import asyncio
import sys

import pytest

from examples.demo import transfer_worker

pytestmark = pytest.mark.timing


@pytest.mark.slow
async def test_worker_of_silent_brokers_ends_with_the_demo() -> None:
    """The demo may have been killed together with its brokers."""
    is_over = asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()
        await writer.wait_closed()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", transfer_worker.__name__, f"{host}:{port}"), stdin=asyncio.subprocess.PIPE
    )
    try:
        assert worker.stdin is not None
        worker.stdin.close()

        assert await worker.wait() == transfer_worker.LEFT_ALONE
    finally:
        if worker.returncode is None:
            worker.kill()
        is_over.set()
        silent.close()
        await silent.wait_closed()
