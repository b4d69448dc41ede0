"""`--inspect PORT`: the inspector's page on loopback, while a command sends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import anyio
import typer

from aioproducer._producer.producer import Producer
from aioproducer.cli.process import tell
from aioproducer.cli.running import usage_error

_HOST = "127.0.0.1"

InspectPort = Annotated[
    int | None,
    typer.Option(
        "--inspect",
        metavar="PORT",
        min=0,
        max=65_535,
        help="Show throughput, latency, and why records wait, on http://127.0.0.1:PORT/ while it runs; 0 picks a port.",
        show_default="off",
    ),
]


def listener_of(port: int | None) -> socket.socket | None:
    """Return a socket at the port, before anything is sent; a port that cannot be had is a usage error."""
    if port is None:
        return None
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()  # a browser that is early waits
    except OSError as error:
        listener.close()
        usage_error(f"--inspect {port}: {error.strerror}; 0 picks a free port")
    return listener


@asynccontextmanager
async def inspected(producer: Producer, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serve the page of a producer during the block; without a listener do nothing."""
    if listener is None:
        yield
        return
    import uvicorn  # noqa: PLC0415  # only then

    from aioproducer.integrations.asgi._inspector import Inspector  # noqa: PLC0415  # as above

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:  # they are the command's
            yield

    app = Inspector([producer])
    server = Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="aioproducer-inspect")
    tell(f"aioproducer: inspect at http://{_HOST}:{listener.getsockname()[1]}/")
    try:
        yield
    finally:
        server.should_exit = True
        with anyio.CancelScope(shield=True):
            await serving
