"""Follows a topic with aiokafka's consumer, and shows its lasting errors once."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

from aioproducer.cli.connecting import CONNECT_TIMEOUT_S
from aioproducer.cli.process import tell
from aioproducer.config import ProducerConfig
from aioproducer.integrations._aiokafka_security import aiokafka_security

CLIENT_ID = "aioproducer-tail"
STOP_TIMEOUT_S = 3.0
BATCH_WAIT_MS = 500
MAX_BATCH_RECORDS = 1_000
COMMIT_INTERVAL_S = 1.0
CAREFUL_PAUSE_S = 0.05
SHOWN_BYTES = 40  # of what is not UTF-8
PASSING_S = 1.0  # shorter errors are not shown: a coordinator is being elected, a leader moves
REPEAT_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class TailSettings:
    """The topic, and how it is read."""

    topic: str
    cluster: ProducerConfig
    from_beginning: bool = False
    group: str | None = None
    read_committed: bool = False


class UnreachableError(Exception):
    """No broker answered."""


class UnreadableRecordError(Exception):
    """A record that aiokafka's consumer cannot read; says which, and why."""


class Tail:
    """A started consumer of one topic.

    Offsets of a group are committed only for records that the caller has finished.
    """

    def __init__(self, consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
        self._consumer = consumer
        self._settings = settings
        self._next_offsets: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S
        self._is_careful = False
        self._unreadable: UnreadableRecordError | None = None

    async def has_topic(self) -> bool:
        return self._settings.topic in await self._consumer.topics()

    @property
    def topic(self) -> str:
        return self._settings.topic

    async def subscribe(self) -> None:
        """Read the topic; without a group, every record after this call is read."""
        self._consumer.subscribe([self._settings.topic])
        if self._settings.group is not None:
            return
        while not self._consumer.assignment():  # noqa: ASYNC110 - no event
            await anyio.sleep(0.01)
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)

    async def next_batch(self, at_most: int) -> Sequence[ConsumerRecord]:
        """Return up to `at_most` records, or none after half a second.

        Raises:
            UnreadableRecordError: a record cannot be read; those before it in its partition were returned.
        """
        await self._commit_now_and_then()
        if self._is_careful:
            return await self._one_of_each(at_most)
        try:
            batches: Mapping[TopicPartition, Sequence[ConsumerRecord]] = await self._consumer.getmany(
                timeout_ms=BATCH_WAIT_MS, max_records=min(at_most, MAX_BATCH_RECORDS)
            )
        except UnicodeDecodeError:  # its records are fetched again, one by one, to find out which it is
            self._is_careful = True
            return []
        return [record for batch in batches.values() for record in batch]

    async def _one_of_each(self, at_most: int) -> Sequence[ConsumerRecord]:
        """Return up to one record of each partition; after an error, a position is that of the unreadable record."""
        if self._unreadable is not None:
            raise self._unreadable
        found: list[ConsumerRecord] = []
        for partition in sorted(self._consumer.assignment()):
            if len(found) == at_most:
                break
            try:
                batches = await self._consumer.getmany(partition, timeout_ms=0, max_records=1)
            except UnicodeDecodeError as error:
                where = f"partition {partition.partition}, offset {await self._consumer.position(partition)}"
                self._unreadable = UnreadableRecordError(
                    f"the record of {partition.topic} at {where} cannot be read: the name of a header, "
                    f"0x{error.object[:SHOWN_BYTES].hex()}, is not UTF-8"
                )
                break  # raised when what was found is shown
            found += [record for batch in batches.values() for record in batch]
        if not found:
            await anyio.sleep(CAREFUL_PAUSE_S)
        return found

    def done(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            self._next_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1

    async def commit(self) -> None:
        """Commit finished records of a group; after a rebalance, the new owner reads them again."""
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
    """Start a consumer for the block, and commit finished records after it, also if it is cancelled."""
    security = await aiokafka_security(settings.cluster)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=list(settings.cluster.bootstrap_servers),
        client_id=CLIENT_ID,
        group_id=settings.group,
        auto_offset_reset="earliest" if settings.from_beginning else "latest",
        isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
        enable_auto_commit=False,
        metadata_max_age_ms=30_000,
        **security,
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
                pass  # these records will be shown again
            finally:
                await consumer.stop()


async def _start(consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await consumer.start()
    except (KafkaConnectionError, TimeoutError) as error:
        raise UnreachableError(f"no broker answers at {','.join(settings.cluster.bootstrap_servers)}") from error


class ConsumerLog(logging.Handler):
    """Handles aiokafka's errors: keeps the last one while the consumer starts, later shows lasting ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Replace the handler that would print all errors."""
        super().__init__(logging.ERROR)
        self.is_shown = False
        self.last: str = ""
        self._clock = clock
        self._show_at: dict[str, float] = {}
        library = logging.getLogger("aiokafka")
        library.addHandler(self)
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = message = record.getMessage()
        now = self._clock()
        if not self.is_shown or now < self._show_at.setdefault(message, now + PASSING_S):
            return
        self._show_at[message] = now + REPEAT_AFTER_S
        tell(f"aioproducer: {message}")
