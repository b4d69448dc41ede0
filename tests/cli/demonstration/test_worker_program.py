"""The worker of `demo --transactions` ends with the demo, whatever has become of its brokers."""

import asyncio
import sys

import pytest

from aioproducer.cli.demonstration.transfers import worker_program


@pytest.mark.slow
async def test_worker_whose_brokers_say_nothing_does_not_outlive_the_demo() -> None:
    """The demo may have been killed, and its brokers with it: nobody is left who would end the worker."""
    is_over = asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writer.close()
        await writer.wait_closed()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", worker_program.__name__, f"{host}:{port}"), stdin=asyncio.subprocess.PIPE
    )
    try:
        assert worker.stdin is not None
        worker.stdin.close()

        assert await worker.wait() == worker_program.LEFT_ALONE
    finally:
        if worker.returncode is None:
            worker.kill()
        is_over.set()
        silent.close()
        await silent.wait_closed()
