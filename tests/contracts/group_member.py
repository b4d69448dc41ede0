"""A consumer that joins a group by requests, step by step: what contract tests of groups are made with."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib import import_module

from aioproducer.testing import ApiKey
from tests.contracts.raw_client import RawClient

SUBSCRIPTION = bytes(6) + b"\xff\xff\xff\xff"
"""Of a consumer, to no topic: brokers read it (and one that they cannot read may get no answer)."""

NOT_READY = {14, 15, 16}  # what a broker says until the topic of groups' offsets is there and read


class GroupMember:
    """One consumer and its group, on one connection."""

    def __init__(self, client: RawClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._generation = -1
        self.member_id = ""

    async def wait_for_coordinator(self) -> None:
        """Poll for the coordinator until it responds; the first request creates it."""
        async with asyncio.timeout(20):
            while int((await self.find()).error_code) or await self.describe_error() in NOT_READY:  # noqa: ASYNC110 - asks a broker
                await asyncio.sleep(0.1)

    async def find(self):  # noqa: ANN201 - one of kio's classes
        return await self._client.ask(ApiKey.FIND_COORDINATOR, 1, key=self._group_id, key_type=0)

    async def describe_error(self) -> int:
        """The error of DescribeGroups."""
        answer = await self._client.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=(self._group_id,))
        return int(answer.groups[0].error_code)

    async def join(self) -> int:
        """Send JoinGroup, with the id that was given if any; returns the error."""
        message = import_module("kio.schema.join_group.v5.request")
        answer = await self._client.ask(
            ApiKey.JOIN_GROUP,
            5,
            group_id=self._group_id,
            session_timeout=timedelta(seconds=20),
            rebalance_timeout=timedelta(seconds=20),
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(message.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
        )
        self.member_id, self._generation = answer.member_id, int(answer.generation_id)
        return int(answer.error_code)

    async def sync(self, assignment: bytes) -> int:
        """Assign this to itself; returns the error."""
        message = import_module("kio.schema.sync_group.v3.request")
        assigned = message.SyncGroupRequestAssignment(member_id=self.member_id, assignment=assignment)
        answer = await self._client.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=None,
            assignments=(assigned,),
        )
        return int(answer.error_code)

    async def commit(self, topic: str, offset: int) -> int:
        """Commit an offset of partition 0, before joining without a member id; returns the error."""
        message = import_module("kio.schema.offset_commit.v2.request")
        part = message.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        answer = await self._client.ask(
            ApiKey.OFFSET_COMMIT,
            2,
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation,
            member_id=self.member_id,
            topics=(message.OffsetCommitRequestTopic(name=topic, partitions=(part,)),),
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, topic: str) -> int:
        """The group's offset of partition 0; -1: none."""
        message = import_module("kio.schema.offset_fetch.v5.request")
        asked = (message.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),)
        answer = await self._client.ask(ApiKey.OFFSET_FETCH, 5, group_id=self._group_id, topics=asked)
        return int(answer.topics[0].partitions[0].committed_offset)

    async def leave(self) -> int:
        """Leave the group; returns the error."""
        answer = await self._client.ask(ApiKey.LEAVE_GROUP, 1, group_id=self._group_id, member_id=self.member_id)
        return int(answer.error_code)
