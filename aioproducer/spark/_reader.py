"""The readers that Spark calls: a task reads a range of offsets of a partition.

The rows are those of Spark's own Kafka source: key, value, topic, partition, offset, timestamp, timestampType, and
headers where asked for. The offsets a stream keeps are that source's too. Ranges are fixed by the offsets, so a batch
that is run again has the same rows. All through aiokafka's consumer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.spark._cluster_offsets import ClusterOffsets, Found, asked
from aioproducer.spark._consumer import ReadRecord, consumer_of, records_of
from aioproducer.spark._offsets import (
    Bounds,
    OffsetRange,
    Offsets,
    OffsetsChoice,
    Side,
    check_matched,
    check_order,
    chosen,
    cut_to_rows,
    from_json,
    ranges,
    split,
    to_json,
)
from aioproducer.spark._process_log import process_log
from aioproducer.spark._python_worker import reused_worker
from aioproducer.spark._shown_errors import text_first
from aioproducer.spark._source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


ROWS_PER_BATCH: Final = 20_000

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", _TIMESTAMP),
    ("timestampType", pa.int32()),
)
_PARTS: Final = tuple(map(attrgetter, ("key", "value", "offset", "timestamp", "timestamp_type")))
_KINDS: Final = (pa.binary(), pa.binary(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.int32())
_HEADERS_FIELD: Final = ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


_AGED: Final = "retention took them before the query read them, or the topic was deleted and created again"
_OTHER_TOPIC: Final = "the topic was deleted, or created again, or its leader has lost records"
"""Causes of a loss, as far as offsets show it."""


class RangeReader:
    """Part that both readers have in common, in tasks and on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = ClusterOffsets(options)

    def offsets_of(self, side: Side, choice: OffsetsChoice, found: Found) -> Offsets:
        """Return the offset of each partition at which a read begins or ends.

        Raises:
            ConfigurationError: the choice does not fit the partitions.
        """
        option, at_times = choice.option(side), found.at_times.get(side, {})
        try:
            if side == "starting" and not self._options.allows_latest_without_match:
                check_matched(choice, at_times)
            return chosen(choice, found.bounds, at_times)
        except ValueError as error:
            raise ConfigurationError(f"{option}: {error}", option=option) from None

    def plan(self, start: Offsets, end: Offsets, bounds: Bounds) -> list[InputPartition]:
        """Return a partition of Spark's for each range, or part of one.

        Raises:
            KafkaError: records of it are deleted, or were never there, unless failOnDataLoss=false.
        """
        left = [self._left_of(each, bounds) for each in ranges(start, end, bounds.earliest)]
        parts = split(
            [each for each in left if each.start < each.end],
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [InputPartition(each) for each in parts]

    def _left_of(self, wanted: OffsetRange, bounds: Bounds) -> OffsetRange:
        """Return what the partition has of a range."""
        place, named = (wanted.topic, wanted.partition), f"{wanted.topic}-{wanted.partition}"
        if place not in bounds.latest:
            self.note_loss(f"partition {named} is gone", _OTHER_TOPIC)
            return wanted._replace(end=wanted.start)
        first, last = bounds.earliest[place], bounds.latest[place]
        if first > wanted.start:
            self.note_loss(f"offsets {wanted.start} to {min(first, wanted.end)} of {named} are deleted", _AGED)
        if last < wanted.end:
            self.note_loss(
                f"offsets {max(last, wanted.start)} to {wanted.end} of {named} are not there; it ends at {last}",
                _OTHER_TOPIC,
            )
        return wanted._replace(start=max(wanted.start, first), end=min(wanted.end, last))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            KafkaError: no record came in time (kafkaConsumer.pollTimeoutMs); or records are deleted, unless
                failOnDataLoss=false.
        """
        if partition is None or partition.value is None:  # Spark makes such a partition of a batch without any
            return
        wanted: OffsetRange = partition.value
        with (
            reused_worker(),
            text_first(),
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(
                consumer_of(self._options, patience_s=self._options.poll_timeout_ms / 1_000)
            ) as consumer,
        ):
            place = TopicPartition(wanted.topic, wanted.partition)
            portal.call(_begin, consumer, place, wanted.start)
            next_records = partial(self._next_records, consumer, place)
            for records in _read_ahead(portal, next_records, position=wanted.start, end=wanted.end):
                for first in range(0, len(records), ROWS_PER_BATCH):
                    yield self._batch(place, records[first : first + ROWS_PER_BATCH])

    async def _next_records(
        self, consumer: AIOKafkaConsumer, place: TopicPartition, position: int
    ) -> tuple[Sequence[ReadRecord], int]:
        """Return records and the offset after them; an offset further on without records is one that has none.

        Raises:
            KafkaError: none came in time.
        """
        patience_s = self._options.poll_timeout_ms / 1_000
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            try:
                found = await consumer.getmany(place, timeout_ms=200)  # what one fetch has brought
            except OffsetOutOfRangeError:
                earliest = (await consumer.beginning_offsets([place]))[place]
                gone = f"offset {position} of {place.topic}-{place.partition} is gone; it begins at {earliest}"
                self.note_loss(gone, _AGED)
                consumer.seek(place, earliest)
                continue
            reached = await consumer.position(place)
            if found or reached > position:
                return records_of(found.get(place, ())), reached
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(
                    f"no record of {place.topic}-{place.partition} came after offset {position} for "
                    f"{patience_s:g} s (kafkaConsumer.pollTimeoutMs), though the partition goes on: its leader does "
                    "not answer, or the topic was deleted"
                )

    def note_loss(self, what: str, cause: str) -> None:
        """Log that records are gone, and what may have caused it.

        Raises:
            KafkaError: unless failOnDataLoss=false.
        """
        text = f"{what}: {cause}"
        if self._options.fails_on_data_loss:
            raise KafkaError(f"{text}. To go on without them: failOnDataLoss=false")
        process_log().warning("%s; the query goes on without them", text)

    def _batch(self, place: TopicPartition, records: Sequence[ReadRecord]) -> pa.RecordBatch:
        of_each = [[*map(part, records)] for part in _PARTS]
        key, value, offset, ms, kind = (pa.array(column, kind) for column, kind in zip(of_each, _KINDS, strict=True))
        arrays = [
            key,
            value,
            pa.repeat(pa.scalar(place.topic, pa.string()), len(records)),
            pa.repeat(pa.scalar(place.partition, pa.int32()), len(records)),
            offset,
            ms.cast(_TIMESTAMP),
            kind,
        ]
        fields = list(_FIELDS)
        if self._options.includes_headers:
            headers = [[{"key": key, "value": value} for key, value in record.headers] or None for record in records]
            arrays.append(pa.array(headers, _HEADERS_FIELD[1]))
            fields.append(_HEADERS_FIELD)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _read_ahead(
    portal: BlockingPortal,
    next_records: Callable[[int], Coroutine[object, object, tuple[Sequence[ReadRecord], int]]],
    *,
    position: int,
    end: int,
) -> Iterator[Sequence[ReadRecord]]:
    """Yield the records between two offsets, and read the next ones while these are used."""
    following = portal.start_task_soon(next_records, position)
    try:
        while position < end:
            records, position = following.result()
            if position < end:
                following = portal.start_task_soon(next_records, position)
            if records and records[-1].offset >= end:
                records = [record for record in records if record.offset < end]
            yield records
    finally:
        following.cancel()


async def _begin(consumer: AIOKafkaConsumer, place: TopicPartition, offset: int) -> None:
    """Assign a partition; aiokafka wants a running loop for it."""
    consumer.assign([place])
    consumer.seek(place, offset)


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark's."""


class KafkaReader(RangeReader, DataSourceReader):
    """Reads what topics have when the job begins."""

    @text_first()
    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each range of the read.

        Raises:
            ConfigurationError: the offsets do not fit the partitions, or each other.
            KafkaError: records are not there, unless failOnDataLoss=false.
        """
        first, last = self._options.starting_offsets, self._options.ending_offsets
        found = self._cluster.ask({"starting": first, "ending": last})
        start, end = self.offsets_of("starting", first, found), self.offsets_of("ending", last, found)
        try:
            check_order(start, end)
        except ValueError as error:
            option = first.option("starting")
            raise ConfigurationError(f"{option} and {last.option('ending')}: {error}", option=option) from None
        return self.plan(start, end, found.bounds)


class KafkaStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream; the state of the driver's one lives as long as the query.

    Args:
        options: of the read.
        now: the time in seconds, for `maxTriggerDelay`.
    """

    def __init__(self, options: SourceOptions, *, now: Callable[[], float] = monotonic) -> None:
        super().__init__(options)
        self._now = now
        self._last_batch_at: float | None = None
        self._last_end: Offsets | None = None
        self._stop_at: Offsets | None = None

    @text_first()
    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return where a new query begins.

        Raises:
            ConfigurationError: the offsets do not fit the partitions.
            KafkaError: they are behind the end of a partition, unless failOnDataLoss=false.
        """
        choice = self._options.starting_offsets
        found = self._cluster.ask({"starting": choice})
        start = self.offsets_of("starting", choice, found)
        for (topic, number), offset in start.items():
            if offset > (end := found.bounds.latest[topic, number]):
                behind = f"{choice.option('starting')}: {topic}-{number} ends at offset {end}, before {offset}"
                self.note_loss(behind, _OTHER_TOPIC)
        self._last_end = start
        return to_json(start)

    @text_first()
    def latestOffset(  # noqa: N802  # Spark's name
        self, start: Mapping[str, Mapping[str, int]] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, dict[str, int]]:
        """Return where the next batch ends; before Spark 4.2 it is asked without arguments."""
        begun = from_json(start) if start else self._last_end
        bounds = self._cluster.ask(at_least=begun or {}).bounds
        latest = bounds.latest
        if self._stop_at is not None:
            latest = {place: min(latest.get(place, last), last) for place, last in self._stop_at.items()}
        if begun is None:
            # Spark 4.0 after a restart: a limited end might lie before the start, which is not known here.
            return to_json(latest)
        self._check_not_lost(begun, bounds)
        begun = {place: min(begun.get(place, bounds.earliest.get(place, end)), end) for place, end in latest.items()}
        if self._waits_for_more(begun, latest):
            return to_json(begun)
        return to_json(cut_to_rows(begun, latest, self._rows_allowed(limit)))

    def _check_not_lost(self, begun: Offsets, bounds: Bounds) -> None:
        for (topic, number), offset in begun.items():
            end = bounds.latest.get((topic, number))
            if end is None:
                self.note_loss(f"partition {topic}-{number} is gone, and was read to offset {offset}", _OTHER_TOPIC)
            elif end < offset:
                self.note_loss(f"{topic}-{number} ends at offset {end}, and was read to {offset}", _OTHER_TOPIC)
        for (topic, number), offset in bounds.earliest.items():
            if offset and (topic, number) not in begun:
                self.note_loss(f"{topic}-{number}, a new partition, begins at offset {offset}", _AGED)

    def _waits_for_more(self, begun: Offsets, latest: Offsets) -> bool:
        """Return whether the batch waits for `minOffsetsPerTrigger`, as long as `maxTriggerDelay` lets it."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._stop_at is not None:  # what is available now is read to its end
            return False
        now, waiting = self._now(), sum(end - begun[place] for place, end in latest.items())
        is_due = self._last_batch_at is None or now - self._last_batch_at >= self._options.max_trigger_delay_ms / 1_000
        if waiting < least and not is_due:
            return True
        self._last_batch_at = now
        return False

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

    @text_first()
    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  # Spark's name
        """Return the latest offsets, for the query's progress."""
        return to_json(self._cluster.ask().bounds.latest)

    @text_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Let the query end at the offsets that are the latest now."""
        self._stop_at = self._cluster.ask().bounds.latest

    @text_first()
    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Sequence[InputPartition]:
        """Return a partition for each range of a batch."""
        begun, ended = from_json(start), from_json(end)
        # Before Spark 4.2 a restart asks for an empty range. If it told the start, Trigger.AvailableNow, which asks
        # for its end once, would end after one limited batch.
        if begun == ended:
            return []
        self._last_end = ended
        return self.plan(begun, ended, self._cluster.ask(at_least=ended).bounds)

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the offsets of a finished batch to `offsetGroup`, for the tools that show lag.

        A failure is logged and stops nothing: Spark keeps the offsets that count.
        """
        if self._options.offset_group is None:
            return
        try:
            asked(self._commit_offsets(self._options.offset_group, from_json(end)))
        except KafkaError as error:
            group = self._options.offset_group
            process_log().warning("offsetGroup=%s: offsets were not committed: %s", group, error)

    async def _commit_offsets(self, group: str, offsets: Offsets) -> None:
        """Commit offsets to a group, which need not have members.

        Raises:
            ConsumerError: the cluster did not answer, or refused.
        """
        async with consumer_of(self._options, group_id=group) as consumer:
            places = {TopicPartition(*place): OffsetAndMetadata(offset, "") for place, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)


class RefusedStreamReader(DataSourceStreamReader):
    """Stands for the reader of a stream whose options are refused: each question of Spark raises the refusal.

    Without a reader PySpark fails when it stops it at the end, and shows that error instead of the refusal.
    """

    def __init__(self, refusal: ConfigurationError) -> None:
        self._refusal = refusal

    @text_first()
    def refuse(self, *_: object) -> NoReturn:
        """Raise the error."""
        raise self._refusal

    initialOffset = latestOffset = partitions = read = refuse  # noqa: N815  # Spark's names
