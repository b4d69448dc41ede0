"""A schema registry over HTTP: what the serializers and confluent's deserializers ask, and faults."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from typing import Self, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import UUID

from aioproducer.integrations.schema_registry import Schema, SchemaId

Body: TypeAlias = dict[str, object]
Answer: TypeAlias = tuple[int, object]


class FakeSchemaRegistry:
    """Gives every schema an id and a guid, and every subject versions."""

    def __init__(self) -> None:
        self.schemas: list[Body] = []
        self.subjects: dict[str, list[int]] = {}  # name -> ids, by version
        self.requests: list[str] = []
        self.credentials: set[str] = set()
        """As `user:password`."""
        self.fault: Callable[[], Answer | float | bytes] | None = None
        """Returns an answer instead, the seconds to wait first, or the bytes of a page."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
                found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(found[1])) if found else b"{}"
                self.requests.append(f"{method} {target}")
                if (basic := re.search(rb"authorization: Basic (\S+)", head, re.IGNORECASE)) is not None:
                    self.credentials.add(base64.b64decode(basic[1]).decode())
                writer.write(await self._answer(method, target, json.loads(body)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, target: str, body: Body) -> bytes:
        fault = self.fault() if self.fault is not None else None
        if isinstance(fault, float):
            await asyncio.sleep(fault)
            fault = None
        if isinstance(fault, bytes):
            status, content = 200, fault
        else:
            status, answer = fault or self._reply(
                method, [unquote(part) for part in urlsplit(target).path[1:].split("/")], body
            )
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content)

    def _reply(self, method: str, path: list[str], body: Body) -> Answer:  # noqa: PLR0911  # one for each path
        match method, *path:
            case "POST", "subjects", subject, "versions":
                return self._register(subject, body)
            case "POST", "subjects", subject:
                return self._look_up(subject, body)
            case "GET", "subjects", subject, "versions", version:
                return self._version(subject, version)
            case "GET", "schemas", "ids", number:
                return 200, self.schemas[int(number) - 1]
            case "GET", "schemas", "guids", guid:
                return 200, self.schemas[UUID(guid).int - 1]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}  # such as associations of topics

    def _register(self, subject: str, body: Body) -> Answer:
        schema = _kept(body)
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return 200, {"id": schema_id, "guid": _guid(schema_id)}

    def _look_up(self, subject: str, body: Body) -> Answer:
        for version, schema_id in enumerate(self.subjects.get(subject, []), 1):
            if self.schemas[schema_id - 1] == _kept(body):
                return self._version(subject, str(version))
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.subjects.get(subject, [])
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        schema_id = versions[number - 1]
        about = {"subject": subject, "version": number, "id": schema_id, "guid": _guid(schema_id)}
        return 200, about | self.schemas[schema_id - 1]


def _guid(schema_id: int) -> str:
    return str(UUID(int=schema_id))


def _kept(body: Body) -> Body:
    kept = {name: body[name] for name in ("schema", "references") if body.get(name)}
    if body.get("schemaType", "AVRO") != "AVRO":
        kept["schemaType"] = body["schemaType"]
    return kept


class KnownSchemas:
    """A registry in memory, with the two methods alone.

    Args:
        number: the id of every schema.
        latest: the schema under that id; None if it keeps none.
    """

    def __init__(self, number: int = 1, latest: Schema | None = None, guid: str | None = None) -> None:
        self._id = SchemaId(number, guid)
        self._latest = latest

    async def schema_id(self, *_: object, **__: object) -> SchemaId:
        return self._id

    async def schema(self, _number: int) -> Schema | None:
        return self._latest
