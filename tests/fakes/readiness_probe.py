"""A load balancer that asks a producer for its readiness in an interval."""

import asyncio
import json
from collections.abc import Mapping

from aioproducer import Producer
from aioproducer.integrations.asgi import readiness
from tests.fakes.virtual_loop import now


class Probe:
    """Keeps when which status came, and what was said last."""

    def __init__(self, producer: Producer) -> None:
        self._app = readiness(producer)
        self.statuses: list[tuple[float, int]] = []
        self.last: dict[str, object] = {}

    async def ask(self) -> int:
        sent: list[Mapping[str, object]] = []

        async def receive() -> dict[str, object]:
            raise AssertionError

        async def send(message: Mapping[str, object]) -> None:
            sent.append(message)

        await self._app({"type": "http", "method": "GET"}, receive, send)
        status, body = sent[0]["status"], sent[1]["body"]
        assert isinstance(status, int)
        assert isinstance(body, bytes)
        self.statuses.append((now(), status))
        (self.last,) = json.loads(body)["producers"]
        return status

    async def ask_for(self, seconds: float, every_s: float = 0.5) -> None:
        end = now() + seconds
        while now() < end:
            await self.ask()
            await asyncio.sleep(every_s)

    @property
    def changes(self) -> list[tuple[float, int]]:
        """The first status, and each that differs from the one before it."""
        before = 0
        changed = []
        for when, status in self.statuses:
            if status != before:
                changed.append((when, status))
            before = status
        return changed
