"""The cluster as its brokers describe it, asked with aiokafka's admin client: who leads which partition now."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError

REQUEST_TIMEOUT_MS = 3_000
LEADERS_TIMEOUT_S = 20.0
LEADERS_POLL_S = 0.05
UNANSWERED = (KafkaError, OSError, TimeoutError)
"""What aiokafka raises where the broker it asked does not answer."""


class TopicNotMadeError(RuntimeError):
    """The cluster refused to make the demo's topic."""


class LeaderWatch:
    """Makes the topic and tells its leaders."""

    def __init__(self, admin: AIOKafkaAdminClient, topic: str) -> None:
        """Ask through `admin`, which is started."""
        self._admin = admin
        self._topic = topic

    async def make_topic(self, partitions: int) -> None:
        """Make the topic, with three replicas of which two must have a record; return once each partition is led.

        Raises:
            TopicNotMadeError: the cluster's reason, or no leaders in time.
        """
        topic = NewTopic(self._topic, partitions, 3, topic_configs={"min.insync.replicas": "2"})
        try:
            async with asyncio.timeout(LEADERS_TIMEOUT_S):
                await self._make(topic)
                while await self._led_partitions() < partitions:  # noqa: ASYNC110 - brokers tell only who asks
                    await asyncio.sleep(LEADERS_POLL_S)
        except TimeoutError:
            raise TopicNotMadeError(f"topic {self._topic} has no leaders after {LEADERS_TIMEOUT_S:.0f} s") from None

    async def _make(self, topic: NewTopic) -> None:
        """Ask until somebody answers: brokers that have just been started may take their time.

        Raises:
            TopicNotMadeError: the cluster's reason.
        """
        fine = {NoError.errno}
        while (results := await self._results_of_making(topic)) is None:
            fine.add(TopicAlreadyExistsError.errno)  # by a request whose answer did not come
            await asyncio.sleep(LEADERS_POLL_S)
        for name, error_code, reason in results:
            if error_code not in fine:
                raise TopicNotMadeError(f"topic {name} could not be made: {reason} (error {error_code})")

    async def _results_of_making(self, topic: NewTopic) -> list[tuple[str, int, str | None]] | None:
        """Name, error code and reason; None if nobody answered."""
        with contextlib.suppress(*UNANSWERED):
            answer = await self._admin.create_topics([topic])
            return list(answer.topic_errors)
        return None

    async def _led_partitions(self) -> int:
        """How many partitions have a leader now."""
        return sum(leader >= 0 for leader in (await self.leaders()).values())

    async def nodes(self) -> tuple[int, ...]:
        """The brokers that live now, in order; empty if nobody could tell now."""
        with contextlib.suppress(*UNANSWERED):
            cluster = await self._admin.describe_cluster()
            return tuple(sorted(broker["node_id"] for broker in cluster["brokers"]))
        return ()

    async def leaders(self) -> dict[int, int]:
        """Partition -> node id of its leader, -1 for none; empty if nobody could tell now.

        The client asks a broker at random, also one that has just died: then the next question finds another.
        """
        with contextlib.suppress(*UNANSWERED):
            (topic,) = await self._admin.describe_topics([self._topic])
            leaders = {partition["partition"]: partition["leader"] for partition in topic["partitions"]}
            return dict(sorted(leaders.items()))
        return {}


@contextlib.asynccontextmanager
async def leader_watch(bootstrap_servers: str, topic: str) -> AsyncIterator[LeaderWatch]:
    """A watch with a client of its own."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap_servers, request_timeout_ms=REQUEST_TIMEOUT_MS, metadata_max_age_ms=1_000
    )
    await admin.start()
    try:
        yield LeaderWatch(admin, topic)
    finally:
        await admin.close()
