"""A consumer group on one broker and those who take part in it: where contract tests of groups happen."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from aioproducer.testing import ApiKey
from tests.contracts.group_client import GroupClient, Joined
from tests.contracts.raw_client import RawClient
from tests.kafka_releases import fake_and_real

LINES: Sequence[object] = fake_and_real(["3.9.1", "4.3.1"])
"""The two coordinators of groups that Kafka has had, embedded and real."""


class Room:
    """A group of its own on one broker, and the clients with a connection to it."""

    def __init__(self, release: str, bootstrap_servers: str) -> None:
        self.release = release
        self.group = f"g-{secrets.token_hex(6)}"
        self._bootstrap_servers = bootstrap_servers
        self._connections: list[RawClient] = []

    async def consumer(self, instance_id: str | None = None, *, group: str | None = None) -> GroupClient:
        client = await RawClient.connect(self._bootstrap_servers)
        self._connections.append(client)
        return GroupClient(client, self.group if group is None else group, instance_id)

    async def settled(self, *instance_ids: str | None) -> Sequence[GroupClient]:
        """Return members of a stable group, the leader first; their assignments are `b"0"`, `b"1"` and so on."""
        members = [await self.consumer(instance_id) for instance_id in instance_ids]
        await members[0].enter()
        for count in range(2, len(members) + 1):
            await together(*members[:count])
        assigned = {member.member_id: str(number).encode() for number, member in enumerate(members)}
        await members[0].sync(**assigned)
        for member in members[1:]:
            await member.sync()
        return members

    async def open(self) -> None:
        """Wait until the group's coordinator is there and has loaded."""
        found, loaded = -1, -1
        client = (await self.consumer()).client
        while (found, loaded) != (0, 0):
            found = int((await client.ask(ApiKey.FIND_COORDINATOR, 2, key=self.group, key_type=0)).error_code)
            loaded = int((await client.ask(ApiKey.OFFSET_FETCH, 5, group_id=self.group, topics=())).error_code)
            await asyncio.sleep(0.01 if found == loaded == 0 else 0.05)

    async def close(self) -> None:
        for client in self._connections:
            await client.close()


async def together(*members: GroupClient, **terms: object) -> list[Joined]:
    async with asyncio.TaskGroup() as group:
        last = group.create_task(members[-1].enter(**terms))  # type: ignore[arg-type]
        others = []
        for member in members[:-1]:
            await member.until_heartbeat(27)
            others.append(group.create_task(member.join(**terms)))  # type: ignore[arg-type]
    return [task.result() for task in (*others, last)]
