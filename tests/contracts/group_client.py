"""A consumer made of single requests, and a group on one broker in which several of them meet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

from aioproducer.testing import ApiKey
from tests.contracts.clients import RawClient
from tests.kafka_releases import fake_and_real

RANGE: Mapping[str, bytes] = {"range": b"m"}
_PATIENCE_S = 10.0


class Joined(NamedTuple):
    error: int
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    skips: bool = False
    others: tuple[str, ...] = ()


class Synced(NamedTuple):
    error: int
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class GroupClient:
    """A member of one group on its own connection; remembers its id and generation."""

    def __init__(self, client: RawClient, group: str, instance_id: str | None = None) -> None:
        self.client = client
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def former(self) -> GroupClient:
        """Return a client on this connection that keeps the current id and generation."""
        former = GroupClient(self.client, self.group, self.instance_id)
        former.member_id, former.generation = self.member_id, self.generation
        return former

    async def join(
        self,
        version: int = 9,
        *,
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        session_s: float = 10.0,
        rebalance_s: float = 8.0,
    ) -> Joined:
        message = import_module(f"kio.schema.join_group.v{version}.request")
        offered = tuple(message.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items())
        fields = {
            "group_id": self.group,
            "session_timeout": timedelta(seconds=session_s),
            "rebalance_timeout": timedelta(seconds=rebalance_s),
            "member_id": self.member_id,
            "protocol_type": protocol_type,
            "protocols": offered,
            **self._instance(version, since=5),
        }
        answer = await self.client.ask(ApiKey.JOIN_GROUP, version, **fields)
        self.member_id, self.generation = answer.member_id or self.member_id, answer.generation_id
        others = tuple(other.member_id for other in answer.members)
        skips = getattr(answer, "skip_assignment", False)
        told = (answer.generation_id, answer.protocol_name, answer.leader, answer.member_id, skips, others)
        return Joined(int(answer.error_code), *told)

    async def enter(self, version: int = 9, **terms: object) -> Joined:
        """Join, with the id one is given first if one has to."""
        joined = await self.join(version, **terms)  # type: ignore[arg-type]
        return await self.join(version, **terms) if joined.error == 79 else joined  # type: ignore[arg-type]

    async def sync(
        self, version: int = 5, *, kind: str | None = "consumer", name: str | None = "range", **assigned: bytes
    ) -> Synced:
        """Send SyncGroup with assignments by member id."""
        message = import_module(f"kio.schema.sync_group.v{version}.request")
        assignments = tuple(
            message.SyncGroupRequestAssignment(member_id=member, assignment=what) for member, what in assigned.items()
        )
        protocol = {"protocol_type": kind, "protocol_name": name} if version >= 5 else {}
        asked = {**self._membership(version), **protocol, "assignments": assignments}
        answer = await self.client.ask(ApiKey.SYNC_GROUP, version, **asked)
        names = (getattr(answer, "protocol_type", None), getattr(answer, "protocol_name", None))
        return Synced(int(answer.error_code), answer.assignment, *names)

    async def heartbeat(self, version: int = 4) -> int:
        """Send a heartbeat; returns the error."""
        return int((await self.client.ask(ApiKey.HEARTBEAT, version, **self._membership(version))).error_code)

    async def until_heartbeat(self, expected: int) -> None:
        """Send heartbeats until one is answered like this."""
        async with asyncio.timeout(_PATIENCE_S):
            while await self.heartbeat() != expected:  # noqa: ASYNC110 - asks a broker
                await asyncio.sleep(0.02)

    async def leave(self, *others: tuple[str, str | None]) -> list[int]:
        """Send LeaveGroup 5 for these member and instance ids, or for oneself; returns the errors."""
        message = import_module("kio.schema.leave_group.v5.request")
        leaving = others or ((self.member_id, self.instance_id),)
        members = tuple(message.MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in leaving)
        answer = await self.client.ask(ApiKey.LEAVE_GROUP, 5, group_id=self.group, members=members)
        return [int(answer.error_code)] if answer.error_code else [int(left.error_code) for left in answer.members]

    async def commit(self, topic: str, offset: int = 1, *, version: int = 9, metadata: str = "") -> int:
        """Send OffsetCommit of partition 0; returns the error."""
        message = import_module(f"kio.schema.offset_commit.v{version}.request")
        fields = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
        topics = (
            message.OffsetCommitRequestTopic(name=topic, partitions=(message.OffsetCommitRequestPartition(**fields),)),
        )
        who = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            **self._instance(version, since=7),
        }
        answer = await self.client.ask(ApiKey.OFFSET_COMMIT, version, **who, topics=topics)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, topic: str) -> int:
        """The offset that OffsetFetch 7 finds for partition 0."""
        message = import_module("kio.schema.offset_fetch.v7.request")
        topics = (message.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),)
        answer = await self.client.ask(ApiKey.OFFSET_FETCH, 7, group_id=self.group, topics=topics)
        return int(answer.topics[0].partitions[0].committed_offset)

    def _membership(self, version: int) -> dict[str, object]:
        known = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return {**known, **self._instance(version, since=3)}

    def _instance(self, version: int, *, since: int) -> dict[str, object]:
        return {"group_instance_id": self.instance_id} if version >= since else {}


LINES: Sequence[object] = fake_and_real(["3.9.1", "4.4.0"])
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
        await (await self.consumer()).client.group_coordinator(self.group)

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
