"""The readers that Spark calls: a task reads a range of offsets of a partition.

The rows are those of Spark's own Kafka source: key, value, topic, partition, offset, timestamp, timestampType, and
headers where asked for. The offsets a stream keeps are that source's too. Ranges are fixed by the offsets, so a batch
that is run again has the same rows. All through aiokafka's consumer, which is imported here alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as ConsumerError
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._producer.connection_security import cluster_access
from aioproducer._shown_values import how_to_create
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.integrations._aiokafka_security import aiokafka_security
from aioproducer.spark._offsets import (
    OffsetRange,
    Offsets,
    Place,
    chosen,
    from_json,
    limited,
    lost_ranges,
    ranges,
    to_json,
)
from aioproducer.spark._options import FIRST_ANSWER_TIMEOUT_S, SourceOptions, connection_config, consumer_arguments
from aioproducer.spark._python_worker import reused_worker

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord
    from pyspark.sql.streaming.datasource import ReadLimit


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
    """Part that both readers have in common, in tasks and on the driver."""

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
        if missing := [topic for topic, count in counts.items() if not count]:
            raise ConfigurationError(
                f"subscribe: no topic {', '.join(map(repr, missing))} exists; {how_to_create(missing[0])}",
                option="subscribe",
            )
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
        text = f"{what}: written later than the query read, or the topic was deleted and created again"
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


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark's."""


class KafkaReader(RangeReader, DataSourceReader):
    """Reads what topics have when the job begins."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each range of the read.

        Raises:
            ConfigurationError: the offsets name a partition that is not there.
        """
        earliest, latest = self.earliest_and_latest()
        try:
            start = chosen(self._options.starting_offsets, earliest, latest)
            end = chosen(self._options.ending_offsets, earliest, latest)
        except ValueError as error:
            raise ConfigurationError(f"startingOffsets or endingOffsets: {error}") from None
        return self.plan(start, end, earliest)


class KafkaStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream; the state of the driver's one lives as long as the query."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._last_end: Offsets | None = None
        self._stop_at: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return where a new query begins.

        Raises:
            ConfigurationError: startingOffsets name a partition that is not there.
        """
        earliest, latest = self.earliest_and_latest()
        try:
            self._last_end = chosen(self._options.starting_offsets, earliest, latest)
            return to_json(self._last_end)
        except ValueError as error:
            raise ConfigurationError(f"startingOffsets: {error}", option="startingOffsets") from None

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: Mapping[str, Mapping[str, int]] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, dict[str, int]]:
        """Return where the next batch ends; before Spark 4.2 it is asked without arguments."""
        earliest, latest = self.earliest_and_latest()
        if self._stop_at is not None:
            latest = {place: min(offset, self._stop_at.get(place, 0)) for place, offset in latest.items()}
        begun = from_json(start) if start else self._last_end
        if begun is None:
            # Spark 4.0 after a restart: a limited end might lie before the start, which is not known here.
            return to_json(latest)
        self._check_not_before(begun, latest)
        begun = {place: min(begun.get(place, earliest[place]), latest[place]) for place in latest}
        return to_json(limited(begun, latest, self._rows_allowed(limit)))

    def _check_not_before(self, begun: Offsets, latest: Offsets) -> None:
        for (topic, number), offset in begun.items():
            end = latest.get((topic, number), offset)
            if end < offset and self._stop_at is None:
                self.note_loss(f"{topic}-{number} ends at offset {end}, and was read to {offset}")

    def _rows_allowed(self, limit: "ReadLimit | None") -> int | None:
        if limit is None:
            return self._options.max_offsets_per_trigger
        rows: int | None = getattr(limit, "max_rows", None)
        return rows

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802  # Spark's name
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: PLC0415  # Spark 4.2

        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return the latest offsets, for the query's progress."""
        return to_json(self.earliest_and_latest()[1])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Let the query end at the offsets that are the latest now."""
        self._stop_at = self.earliest_and_latest()[1]

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        """Return a partition for each range of a batch."""
        begun, ended = from_json(start), from_json(end)
        # Before Spark 4.2 a restart asks for an empty range. If it told the start, Trigger.AvailableNow, which asks
        # for its end once, would end after one limited batch.
        if begun != ended:
            self._last_end = ended
        earliest, _ = self.earliest_and_latest()
        return self.plan(begun, ended, earliest)

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the offsets of a finished batch to `offsetGroup`, for the tools that show lag.

        A failure is logged and stops nothing: Spark keeps the offsets that count.
        """
        if self._options.offset_group is None:
            return
        try:
            asked(self.commit_offsets(self._options.offset_group, from_json(end)))
        except KafkaError as error:
            log.warning("offsetGroup=%s: offsets were not committed: %s", self._options.offset_group, error)
