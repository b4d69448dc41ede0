"""Proxies for tests: SOCKS5 and CONNECT that work, and one that answers with any bytes."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class WorkingProxy:
    """Speaks both protocols, told by the first byte, and keeps what it was asked for.

    Args:
        credentials: "user:password" that it wants, if any.
        places: "host:port" asked for -> port on 127.0.0.1 that it leads to; others are connected to as they are.
    """

    def __init__(self, *, credentials: str | None = None, places: dict[str, int] | None = None) -> None:
        self.asked: list[str] = []
        self.port = 0
        self._credentials = credentials
        self._places = places or {}
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            first = await reader.readexactly(1)
            place = await (self._socks5(reader, writer) if first == b"\x05" else self._http(reader, writer))
            if place is not None:
                await self._relay(place, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _socks5(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        wanted = 0 if self._credentials is None else 2
        writer.write(bytes([5, wanted if wanted in methods else 0xFF]))
        if wanted not in methods:
            return None
        if self._credentials is not None:
            user = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_right = user + b":" + password == self._credentials.encode()
            writer.write(bytes([1, not is_right]))
            if not is_right:
                return None
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(b"\x05\x00\x00\x03\x04here\x00\x01")
        return f"{host}:{port}"

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if self._credentials is not None:
            basic = base64.b64encode(self._credentials.encode()).decode()
            if f"Proxy-Authorization: Basic {basic}\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return None
        for piece in (b"HTTP/1.1 200 Connection ", b"established\r\nVia: a\r", b"\n\r", b"\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)
        return head.split(" ")[1]

    async def _relay(self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(place)
        host, _, port = place.rpartition(":")
        there = ("127.0.0.1", self._places[place]) if place in self._places else (host, int(port))
        upstream_reader, upstream = await asyncio.open_connection(*there)
        self._writers.append(upstream)
        try:
            await asyncio.wait(
                [asyncio.ensure_future(_copy(reader, upstream)), asyncio.ensure_future(_copy(upstream_reader, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            upstream.close()

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def working_proxy(
    *, credentials: str | None = None, places: dict[str, int] | None = None
) -> AsyncIterator[WorkingProxy]:
    proxy = WorkingProxy(credentials=credentials, places=places)
    async with served(proxy.serve) as port:
        proxy.port = port
        yield proxy
        proxy.cut()


@asynccontextmanager
async def hostile_proxy(answers: Sequence[bytes], *, hangs_up: bool = True) -> AsyncIterator[int]:
    """Give each segment that comes in the next answer; then hang up, or be silent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for answer in answers:
                await reader.read(65_536)
                writer.write(answer)
            if not hangs_up:
                await reader.read()
        except OSError:
            pass
        finally:
            writer.close()

    async with served(serve) as port:
        yield port


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
