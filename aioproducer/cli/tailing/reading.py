"""Follows a topic with aiokafka's consumer, batch by batch."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

from aioproducer.cli.waiting import CONNECT_TIMEOUT_S

CLIENT_ID = "aioproducer-tail"
STOP_TIMEOUT_S = 3.0
BATCH_WAIT_MS = 500
MAX_BATCH_RECORDS = 1_000
COMMIT_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class TailSettings:
    """What is read."""

    topic: str
    bootstrap_servers: str
    from_beginning: bool = False
    group: str | None = None
    read_committed: bool = False


class Unreachable(Exception):  # noqa: N818 - it is what the user is told
    """No broker answered."""


class Tail:
    """A started consumer of one topic.

    Offsets of a group are committed for what the caller has dealt with, never for what was only fetched.
    """

    def __init__(self, consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
        self._consumer = consumer
        self._settings = settings
        self._next_offsets: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S

    async def has_topic(self) -> bool:
        """Whether the topic exists; asking does not make it."""
        return self._settings.topic in await self._consumer.topics()

    @property
    def topic(self) -> str:
        """What is read."""
        return self._settings.topic

    async def subscribe(self) -> None:
        """Read the topic; without a group, every record that comes after this call is seen."""
        self._consumer.subscribe([self._settings.topic])
        if self._settings.group is not None:
            return
        while not self._consumer.assignment():  # noqa: ASYNC110 - a metadata answer away, and no event tells of it
            await anyio.sleep(0.01)
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)

    async def next_batch(self, at_most: int) -> Sequence[ConsumerRecord]:
        """The next records, at most so many; none when none came for half a second. Asking again says they are done."""
        await self._commit_now_and_then()
        batches: Mapping[TopicPartition, Sequence[ConsumerRecord]] = await self._consumer.getmany(
            timeout_ms=BATCH_WAIT_MS, max_records=min(at_most, MAX_BATCH_RECORDS)
        )
        return [record for batch in batches.values() for record in batch]

    def done(self, records: Sequence[ConsumerRecord]) -> None:
        """The caller has dealt with these."""
        for record in records:
            self._next_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1

    async def commit(self) -> None:
        """Commit what is done, for a group; what a rebalance took away is read again by whoever has it now."""
        offsets, self._next_offsets = self._next_offsets, {}
        if self._settings.group is None or not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except CommitFailedError:
            return

    async def _commit_now_and_then(self) -> None:
        if time.monotonic() >= self._commit_at:
            await self.commit()
            self._commit_at = time.monotonic() + COMMIT_INTERVAL_S


@asynccontextmanager
async def started_tail(settings: TailSettings) -> AsyncIterator[Tail]:
    """A consumer for the length of a block; commits what is done, also when the block is cancelled.

    Raises:
        Unreachable: no broker answered in ten seconds.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers,
        client_id=CLIENT_ID,
        group_id=settings.group,
        auto_offset_reset="earliest" if settings.from_beginning else "latest",
        isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
        enable_auto_commit=False,
        metadata_max_age_ms=30_000,
    )
    tail = Tail(consumer, settings)
    try:
        await _start(consumer, settings)
        yield tail
    finally:
        with anyio.move_on_after(STOP_TIMEOUT_S, shield=True):
            try:
                await tail.commit()
            except KafkaError:
                pass  # the broker is gone: these records will be shown again
            finally:
                await consumer.stop()


async def _start(consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await consumer.start()
    except (KafkaConnectionError, TimeoutError) as error:
        raise Unreachable(f"no broker answers at {settings.bootstrap_servers}") from error
