"""Topics and leaders, asked of the brokers directly, past the proxies, and by another client (librdkafka)."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

ResultT = TypeVar("ResultT")

ASK_S = 5.0

KEEP_ASKING_S = 60.0  # a question that has to be answered in the end


class Administration:
    """An independent client for everything that is not sending or reading; its calls run in threads."""

    def __init__(self, bootstrap: str) -> None:
        """Ask the brokers of `bootstrap`; connects when it is used."""
        self._client = AdminClient(
            {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 300, "log_level": 0, "socket.timeout.ms": 5000}
        )

    async def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic; one whose deletion is under way is waited for."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=dict(settings))
        await self._do(
            lambda: self._client.create_topics([new], request_timeout=ASK_S)[topic],
            done=KafkaError.TOPIC_ALREADY_EXISTS,
        )
        while len((await self.leaders()).get(topic, {})) != partitions:  # noqa: ASYNC110 - brokers have no events
            await asyncio.sleep(0.1)

    async def delete(self, topic: str) -> None:
        """Delete a topic; its name may be taken again once this returns."""
        await self._do(
            lambda: self._client.delete_topics([topic], request_timeout=ASK_S)[topic],
            done=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        while topic in await self.leaders():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)

    async def grow(self, topic: str, partitions: int) -> None:
        new = NewPartitions(topic, partitions)
        await self._do(
            lambda: self._client.create_partitions([new], request_timeout=ASK_S)[topic],
            done=KafkaError.INVALID_PARTITIONS,
        )

    async def elect_preferred(self) -> None:
        """Give every partition back to the first of its replicas, where that is in sync."""
        kind = confluent_kafka.ElectionType.PREFERRED
        await self._do(  # given a timeout, confluent-kafka 2.16.1 fails with a SystemError
            lambda: self._client.elect_leaders(kind, None), done=KafkaError.ELECTION_NOT_NEEDED
        )

    async def topic_id(self, topic: str) -> str:
        names = confluent_kafka.TopicCollection([topic])

        def describe() -> str:
            return str(self._client.describe_topics(names)[topic].result().topic_id)

        return await self._insist(describe)

    async def leaders(self) -> dict[str, dict[int, int]]:
        """Node by partition by topic; -1 where there is none; without Kafka's own topics."""
        found = await self._insist(lambda: self._client.list_topics(timeout=ASK_S))
        return {
            name: {partition: told.leader for partition, told in topic.partitions.items()}
            for name, topic in found.topics.items()
            if not name.startswith("__")
        }

    async def wait_until_in_sync(self, at_most_s: float) -> None:
        """Return once every partition has all its replicas in sync; after a time in any case."""
        give_up = time.monotonic() + at_most_s
        while time.monotonic() < give_up:
            found = await self._insist(lambda: self._client.list_topics(timeout=ASK_S))
            partitions = [told for topic in found.topics.values() for told in topic.partitions.values()]
            if all(len(told.isrs) == len(told.replicas) for told in partitions):
                return
            await asyncio.sleep(0.3)

    async def _do(self, command: Callable[[], Future[object]], *, done: int) -> None:
        """Insist on a change; refused with the code `done` it has happened, and only the first answer was lost."""

        def once() -> None:
            try:
                command().result()
            except KafkaException as failed:
                if failed.args[0].code() != done:
                    raise

        await self._insist(once)

    async def _insist(self, ask: Callable[[], ResultT]) -> ResultT:
        give_up = time.monotonic() + KEEP_ASKING_S
        while True:
            try:
                return await asyncio.to_thread(ask)
            except KafkaException:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(0.3)
