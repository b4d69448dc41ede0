"""A TCP proxy in front of one broker that knows where requests begin, and can hold some of them back.

    client -> HoldingLink (advertised port) -> broker (its second listener)

A request that is held stays on its way when its client has given up and hung up: the connection to the broker stays
open for it, as with a packet in a router's queue. `release` lets it arrive.
"""

import asyncio
import contextlib
import dataclasses
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Self

from aioproducer.testing import ApiKey
from tests.contracts.clients import schema

LOOPBACK = "127.0.0.1"
PATIENCE_S = 30.0
HEAD = struct.Struct(">ihhi")  # size of the frame, key of the API, version, correlation id


@dataclass(slots=True)
class Way:
    client: asyncio.StreamWriter
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    held: list[bytes] = field(default_factory=list)
    """Requests that wait: the first because it is held, the others because they are behind it."""
    answers: dict[int, bytes] = field(default_factory=dict)


class HoldingLink:
    """Carries frames; use as an async context manager."""

    def __init__(self, port: int, target_port: int) -> None:
        self.requests: list[tuple[ApiKey, int]] = []
        """API and version of each request that came from clients, held or not."""
        self._port = port
        self._target_port = target_port
        self._holds: Callable[[ApiKey], bool] = lambda _: False
        self._ways: list[Way] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, LOOPBACK, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What tests ask for

    def hold(self, api: ApiKey) -> None:
        """Hold every request of this kind that comes from now on, and what comes behind it on its connection."""
        self._holds = lambda found: found is api

    def pass_on(self) -> None:
        """Hold nothing more; what is held stays."""
        self._holds = lambda _: False

    async def holding(self) -> None:
        await self._until(lambda: any(way.held for way in self._ways))

    async def release(self) -> list[tuple[ApiKey, set[int]]]:
        """Let what is held arrive; returns the API of each request, and the error codes that it was answered with."""
        said = []
        for way in [way for way in self._ways if way.held]:
            held, way.held = way.held, []
            for frame in held:
                way.writer.write(frame)
            for _, key, version, number in map(HEAD.unpack_from, held):
                await self._until(partial(way.answers.__contains__, number))
                said.append((ApiKey(key), error_codes(ApiKey(key), version, way.answers[number][4:])))
        return said

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)

    async def _note_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # Connections

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client; what is held of it outlives it."""
        way = Way(writer, *await asyncio.open_connection(LOOPBACK, self._target_port))
        self._ways.append(way)
        for pump in (self._carry_requests(reader, way), self._carry_answers(way)):
            task = asyncio.ensure_future(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_requests(self, reader: asyncio.StreamReader, way: Way) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await self._take(way, await read_frame(reader))
        if not way.held:
            way.writer.close()

    async def _take(self, way: Way, frame: bytes) -> None:
        _, key, version, _ = HEAD.unpack_from(frame)
        self.requests.append((ApiKey(key), version))
        if way.held or self._holds(ApiKey(key)):
            way.held.append(frame)
            await self._note_change()
        else:
            way.writer.write(frame)

    async def _carry_answers(self, way: Way) -> None:
        try:
            while True:
                frame = await read_frame(way.reader)
                way.answers[int.from_bytes(frame[4:8], "big")] = frame[4:]
                way.client.write(frame)
                await self._note_change()
        except (OSError, asyncio.IncompleteReadError):
            way.client.close()
        finally:
            way.client.transport.abort()
            way.writer.transport.abort()


def error_codes(api: ApiKey, version: int, answer: bytes) -> set[int]:
    body = answer[1:] if api.is_flexible(version) else answer  # behind the tagged fields of its head
    entity, _ = import_module("kio.serial").entity_reader(schema(api, version, "response"))(body, 0)
    return set(_codes_in(entity))


def _codes_in(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _codes_in(item)
    elif dataclasses.is_dataclass(value):
        for field_ in dataclasses.fields(value):
            found = getattr(value, field_.name)
            if field_.metadata.get("kafka_type") == "error_code":
                yield int(found)
            else:
                yield from _codes_in(found)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
