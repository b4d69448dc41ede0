"""Servers that listen where a Kafka broker should."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TLS_ALERT = bytes.fromhex("15030300020246")  # fatal, protocol_version: OpenSSL's answer to plain bytes
HUGE_FRAME = (2**31 - 1).to_bytes(4, "big")
NEGATIVE_FRAME = (-5).to_bytes(4, "big", signed=True)


@asynccontextmanager
async def server_that_says(answer: bytes, *, then: bytes = b"") -> AsyncIterator[str]:
    """Answer the first bytes of every client with these, and with `then` until it hangs up; gives host:port."""
    clients: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        await reader.read(1)
        try:
            writer.write(answer)
            while then:
                writer.write(then)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in clients:
            writer.close()
        await server.wait_closed()


@asynccontextmanager
async def dead_port() -> AsyncIterator[str]:
    """Return a port that refuses connections: bound, so that no other process takes it, and not listened on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"
