"""Ranges of offsets: where they are, asked on the driver, and their records as Arrow batches, read in tasks.

All through aiokafka's consumer, which is imported here alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as ConsumerError
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import InputPartition

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._producer.cluster_access import cluster_access
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.integrations._aiokafka_security import aiokafka_security
from aioproducer.spark._offsets import OffsetRange, Offsets, Place, lost_ranges, ranges
from aioproducer.spark._options import FIRST_ANSWER_TIMEOUT_S, SourceOptions, connection_config, consumer_arguments
from aioproducer.spark._python_worker import reused_worker

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

log = logging.getLogger("aioproducer.spark")

ResultT = TypeVar("ResultT")

QUESTION_TIMEOUT_S: Final = 30
"""How long the driver waits for all answers of a question."""
STALL_TIMEOUT_S: Final = 120
"""How long a task waits without a record before it fails."""
ROWS_PER_BATCH: Final = 20_000

_FIELDS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)
_HEADERS_FIELD: Final = ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


class RangeReader:
    """Part that both readers have in common, in tasks and on the driver.

    Args:
        options: of the read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def earliest_and_latest(self) -> tuple[Offsets, Offsets]:
        """Ask the cluster for the first and the next offset of each partition; as far as a reader may see.

        Raises:
            ConfigurationError: a topic does not exist.
            KafkaError: no answer in time.
        """
        return asked(self._earliest_and_latest())

    async def _earliest_and_latest(self) -> tuple[Offsets, Offsets]:
        places = [TopicPartition(*place) for place in await self._places()]
        async with consumer_of(self._options) as consumer:
            earliest = await consumer.beginning_offsets(places)
            latest = await consumer.end_offsets(places)
            return {tuple(place): offset for place, offset in earliest.items()}, {
                tuple(place): offset for place, offset in latest.items()
            }

    async def _places(self) -> list[Place]:
        config = connection_config(self._options.kafka)
        async with ClusterRequests(
            config.bootstrap, FIRST_ANSWER_TIMEOUT_S, client_id=config.client_id, access=cluster_access(config)
        ) as requests:
            cluster = await requests.refresh(self._options.subscribe)
        counts = {topic: cluster.partition_count(topic) or 0 for topic in self._options.subscribe}
        if missing := [repr(topic) for topic, count in counts.items() if not count]:
            raise ConfigurationError(f"subscribe: no topic {', '.join(missing)} exists", option="subscribe")
        return [(topic, number) for topic, count in counts.items() for number in range(count)]

    def plan(self, start: Offsets, end: Offsets, earliest: Offsets) -> list[InputPartition]:
        """Return a partition of Spark's for each range.

        Raises:
            KafkaError: records of it are deleted, unless failOnDataLoss=false.
        """
        planned = ranges(start, end, earliest)
        for lost, left in lost_ranges(planned, earliest):
            self.note_loss(
                f"offsets {lost.start} to {min(left, lost.end)} of {lost.topic}-{lost.partition} are deleted"
            )
        return [
            InputPartition(each._replace(start=max(each.start, earliest.get((each.topic, each.partition), 0))))
            for each in planned
            if each.end > earliest.get((each.topic, each.partition), 0)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            KafkaError: no record came for two minutes; or records are deleted, unless failOnDataLoss=false.
        """
        if partition is None or partition.value is None:  # Spark makes such a partition of a batch without any
            return
        wanted: OffsetRange = partition.value
        with (
            reused_worker(),
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(consumer_of(self._options)) as consumer,
        ):
            place = TopicPartition(wanted.topic, wanted.partition)
            portal.call(_begin, consumer, place, wanted.start)
            position = wanted.start
            while position < wanted.end:
                records, position = portal.call(self._next_records, consumer, place, position)
                taken = [record for record in records if record.offset < wanted.end]
                if taken:
                    yield self._batch(taken)

    async def _next_records(
        self, consumer: AIOKafkaConsumer, place: TopicPartition, position: int
    ) -> tuple[list["ConsumerRecord[bytes, bytes]"], int]:
        """Return records and the offset after them; an offset further on without records is one that has none.

        Raises:
            KafkaError: none came for two minutes.
        """
        deadline = asyncio.get_running_loop().time() + STALL_TIMEOUT_S
        while True:
            try:
                found = await consumer.getmany(place, timeout_ms=200, max_records=ROWS_PER_BATCH)
            except OffsetOutOfRangeError:
                earliest = (await consumer.beginning_offsets([place]))[place]
                self.note_loss(f"offset {position} of {place.topic}-{place.partition} is gone; it begins at {earliest}")
                consumer.seek(place, earliest)
                continue
            reached = await consumer.position(place)
            if found or reached > position:
                return found.get(place, []), reached
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(
                    f"no record of {place.topic}-{place.partition} came after offset {position} for "
                    f"{STALL_TIMEOUT_S} s, though the partition goes on: its leader does not answer"
                )

    def note_loss(self, what: str) -> None:
        """Log that records are gone.

        Raises:
            KafkaError: unless failOnDataLoss=false.
        """
        text = f"{what}: written later than the query read, or the topic was made anew"
        if self._options.fails_on_data_loss:
            raise KafkaError(f"{text}. To go on without them: failOnDataLoss=false")
        log.warning("%s; the query goes on without them", text)

    def _batch(self, records: Sequence["ConsumerRecord[bytes, bytes]"]) -> pa.RecordBatch:
        columns: list[Sequence[object]] = [
            [record.key for record in records],
            [record.value for record in records],
            [record.topic for record in records],
            [record.partition for record in records],
            [record.offset for record in records],
            [record.timestamp * 1_000 for record in records],
            [record.timestamp_type for record in records],
        ]
        fields = list(_FIELDS)
        if self._options.includes_headers:
            columns.append([[{"key": key, "value": value} for key, value in record.headers] for record in records])
            fields.append(_HEADERS_FIELD)
        arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        """Commit offsets to a group, which need not have members.

        Raises:
            ConsumerError: the cluster did not answer, or refused.
        """
        async with consumer_of(self._options, group_id=group) as consumer:
            places = {TopicPartition(*place): OffsetAndMetadata(offset, "") for place, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)


async def _begin(consumer: AIOKafkaConsumer, place: TopicPartition, offset: int) -> None:
    """Assign a partition; aiokafka wants a running loop for it."""
    consumer.assign([place])
    consumer.seek(place, offset)


@asynccontextmanager
async def consumer_of(options: SourceOptions, group_id: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
    """Run a consumer that commits nothing by itself and does not guess where to begin."""
    consumer = AIOKafkaConsumer(
        group_id=group_id,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=options.isolation,
        **dict(consumer_arguments(options.kafka)),
        **await aiokafka_security(connection_config(options.kafka)),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


def asked(question: Coroutine[None, None, ResultT]) -> ResultT:
    """Run a question to the cluster on a loop of its own.

    Raises:
        KafkaError: no answer in time, or a refusal.
    """
    try:
        return asyncio.run(asyncio.wait_for(question, QUESTION_TIMEOUT_S))
    except KafkaError:  # perhaps a TimeoutError too, which says more
        raise
    except TimeoutError:
        raise KafkaError(f"no answer from the cluster in {QUESTION_TIMEOUT_S} s") from None
    except ConsumerError as error:
        raise KafkaError(f"{type(error).__name__}: {error}") from error
