"""The cluster of the demo, and its topics, created and described with aiokafka's admin client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError

FAILOVER_DELAY_S = 0.5
"""Seconds from the death of an embedded broker until its partitions have new leaders: long enough to be seen."""

REQUEST_TIMEOUT_MS = 3_000
LEADERS_TIMEOUT_S = 20.0
POLL_S = 0.05
UNANSWERED = (KafkaError, OSError, TimeoutError)
"""Exceptions of aiokafka if the broker that it asked does not answer."""


class DemoCluster(Protocol):
    """The methods that both kinds of cluster have."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes."""

    async def start(self) -> None:
        """Start all nodes."""

    async def stop(self) -> None:
        """Stop all nodes."""

    async def kill(self, node_id: int) -> None:
        """Stop one node without any clean-up."""


class TopicNotMadeError(RuntimeError):
    """The cluster refused to create a topic of the demo."""


class Topics:
    """Creates topics, and finds their leaders."""

    def __init__(self, admin: AIOKafkaAdminClient) -> None:
        self._admin = admin

    async def create(self, name: str, partitions: int) -> None:
        """Create a topic with three replicas, of which two must have a record, and wait until it has leaders.

        Raises:
            TopicNotMadeError: the cluster refused, or found no leaders in time.
        """
        topic = NewTopic(name, partitions, 3, topic_configs={"min.insync.replicas": "2"})
        try:
            async with asyncio.timeout(LEADERS_TIMEOUT_S):
                await self._create(topic)
                while len([each for each in (await self.leaders(name)).values() if each >= 0]) < partitions:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TopicNotMadeError(f"topic {name} has no leaders after {LEADERS_TIMEOUT_S:.0f} s") from None

    async def _create(self, topic: NewTopic) -> None:
        """Create a topic; brokers that have just started may not answer at once.

        Raises:
            TopicNotMadeError: the cluster refused.
        """
        accepted = {NoError.errno}
        while True:
            with contextlib.suppress(*UNANSWERED):
                answer = await self._admin.create_topics([topic])
                refused = [each for each in answer.topic_errors if each[1] not in accepted]
                if refused:
                    raise TopicNotMadeError(f"topic {refused[0][0]} could not be created: {refused[0][2]}")
                return
            accepted.add(TopicAlreadyExistsError.errno)  # by the request without an answer
            await asyncio.sleep(POLL_S)

    async def leaders(self, name: str) -> dict[int, int]:
        """Return the leader of each partition, -1 for none; nothing if no broker answered.

        aiokafka asks a random broker, perhaps a dead one; then the next call asks another.
        """
        with contextlib.suppress(*UNANSWERED):
            (topic,) = await self._admin.describe_topics([name])
            return {partition["partition"]: partition["leader"] for partition in topic["partitions"]}
        return {}


@contextlib.asynccontextmanager
async def topics_of(bootstrap_servers: str) -> AsyncIterator[Topics]:
    """Connect an admin client for the block."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap_servers, request_timeout_ms=REQUEST_TIMEOUT_MS, metadata_max_age_ms=1_000
    )
    await admin.start()
    try:
        yield Topics(admin)
    finally:
        await admin.close()
