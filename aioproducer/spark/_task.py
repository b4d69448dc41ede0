"""Sending of one task's rows, by a producer on an event loop in a thread of its own; and the figures of a batch.

Spark's thread takes Arrow batches from the JVM and hands each over; two may be on the way, so that one is appended
while the next arrives. Back-pressure is the append itself: it waits for room, then Spark's thread waits, then the JVM.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import anyio
import pyarrow as pa
import pyarrow.compute as pc
from anyio.from_thread import start_blocking_portal

from aioproducer import Producer
from aioproducer._shown_values import shown
from aioproducer._threads.installed_uvloop import installed_uvloop
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import KafkaError, UndeliveredError
from aioproducer.records import TopicPartition
from aioproducer.spark._options import SinkOptions, in_sparks_words
from aioproducer.spark._oversize import SizeLimit
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._report import PartitionRows, TaskCounts
from aioproducer.spark._sent_rows import SentPart, SentRows

BATCHES_ON_THE_WAY: Final = 2
ABORT_TIMEOUT_S: Final = 2.0
_US_PER_S: Final = 1_000_000
_MAX_US: Final = 2.0**62

Watch: TypeAlias = Callable[[Producer], AbstractAsyncContextManager[object]]


class TaskError(KafkaError):
    """A row cannot be sent, or was not delivered; names the task and its row."""


@dataclass(frozen=True, slots=True)
class TaskSender:
    """Sends what tasks are given; pickles, so that Spark takes it to the executors."""

    options: SinkOptions
    columns: SinkColumns

    def send_all(
        self,
        batches: Iterator[pa.RecordBatch],
        *,
        task: int,
        transactional_id: str | None = None,
        watch: Watch = nullcontext,
    ) -> tuple[TaskCounts, PreparedTransaction | None]:
        """Send every row and wait until all are acknowledged.

        Args:
            batches: of the task.
            task: its number, for errors.
            transactional_id: of a transaction for all rows, which is left prepared; None sends without.
            watch: entered with the producer on its event loop, for as long as it sends.

        Returns:
            What was sent; and the transaction, None if there were no rows or it was not asked for.

        Raises:
            TaskError: a row was refused or not delivered; the transaction is aborted.
            KafkaError: the cluster did not answer in time, or refused.
        """
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskCounts(), None
        producer = Producer(self.options.producer_config(transactional_id))
        uvloop = {"loop_factory": installed_uvloop()}
        with (
            start_blocking_portal(backend_options=uvloop) as portal,
            portal.wrap_async_context_manager(watch(producer)),
        ):
            run = TaskRun(self, producer, task)
            try:
                portal.call(run.start)
                self._hand_over(portal.call(run.loop), run, chain([first], filled))
                return portal.call(run.finish)
            except BaseException:
                portal.call(run.abandon)
                raise

    def _hand_over(self, loop: asyncio.AbstractEventLoop, run: "TaskRun", batches: Iterator[pa.RecordBatch]) -> None:
        on_the_way: deque[Future[None]] = deque()
        pace = Pace(self.options.max_records_per_second)
        try:
            for batch in (part for whole in batches for part in _slices(whole, self.options.max_records_per_second)):
                if len(on_the_way) == BATCHES_ON_THE_WAY:
                    on_the_way.popleft().result()
                pace.wait_for(batch.num_rows)
                # A task of the portal would cost three times as much.
                on_the_way.append(asyncio.run_coroutine_threadsafe(run.send(batch), loop))
            while on_the_way:
                on_the_way.popleft().result()
        finally:
            for behind_a_failure in on_the_way:
                behind_a_failure.cancel()


class TaskRun:
    """One task's producer, not started at first; every method runs on its event loop."""

    def __init__(self, sender: TaskSender, producer: Producer, task: int) -> None:
        self._options = sender.options
        self._columns = sender.columns
        self._producer = producer
        self._is_transactional = producer.config.transactional_id is not None
        self._limit = SizeLimit(producer.config) if sender.options.skips_oversize else None
        self._task = task
        self._in_order: Final = anyio.Lock(fast_acquire=True)
        self._rows = 0
        self._skipped = 0
        self._sent: Counter[TopicPartition] = Counter()
        self._on_the_way = SentRows()

    async def start(self) -> None:
        """Start the producer, and its transaction if it has one.

        Raises:
            TaskError: no broker answered in time, or one refused.
        """
        try:
            await self._producer.start()
        except KafkaError as error:
            raise TaskError(f"task {self._task}: {in_sparks_words(error)}") from error
        if self._is_transactional:
            await self._producer.begin_transaction()

    async def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of every method."""
        return asyncio.get_running_loop()

    async def send(self, batch: pa.RecordBatch) -> None:
        """Append all rows of a batch; a failure of an earlier delivery comes out at `finish`.

        Raises:
            TaskError: a row cannot be sent.
        """
        # Two calls are on the way: a batch that waits for room must not let the next one overtake its last rows.
        async with self._in_order:
            first_row = self._rows
            self._rows += batch.num_rows
            complete = self._complete(batch, first_row)
            if self._options.topic is not None:
                await self._send_to(self._options.topic, complete, lambda position: first_row + position)
                return
            topics = batch.column("topic")
            if topics.null_count:
                row = first_row + _first(pc.is_null(topics))
                raise TaskError(f"task {self._task}, row {row}: topic is null, and no option topic is given")
            for topic in topics.unique().to_pylist():
                rows = pc.indices_nonzero(pc.equal(topics, topic))
                await self._send_to(topic, complete.take(rows), _row_of(first_row, rows))

    async def _send_to(self, topic: str, batch: pa.RecordBatch, row_of: Callable[[int], int]) -> None:
        """Append complete rows of one topic; `row_of` turns a position in the batch into the row of the task.

        Raises:
            TaskError: a row cannot be sent.
        """
        if self._limit is not None and (fitting := self._limit.fitting(batch)) is not None:
            self._skipped += batch.num_rows - len(fitting)
            batch, row_of = batch.take(fitting), _row_among(fitting, row_of)
            if not batch.num_rows:
                return
        try:
            taken = await self._producer.send_arrow(topic, batch)
        except (KafkaError, TypeError, ValueError) as refusal:
            raise self._error_of(row_of(0), topic, refusal) from refusal
        self._sent.update(taken.accepted_by_partition)
        for position, error in taken.refused.items():
            raise self._error_of(row_of(position), topic, error) from error
        await self._on_the_way.add(SentPart(topic, taken, row_of))

    def _error_of(self, row: int, topic: str, error: Exception) -> TaskError:
        return TaskError(f"task {self._task}, row {row}, topic {shown(topic)}: {in_sparks_words(error, topic=topic)}")

    async def _raise_undelivered(self) -> None:
        """Raise a TaskError if a row was not delivered."""
        if (found := await self._on_the_way.first_failure()) is None:
            return
        failure, count = found
        others = "" if count == 1 else f" ({count} rows were not delivered)"
        error = self._error_of(failure.row, failure.topic, failure.error)
        raise TaskError(f"{error}{others}") from failure.error

    def _complete(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return only the columns that are sent, with the constant headers and a timestamp that Arrow knows."""
        parts = sorted(self._columns.present - {"topic"})
        if batch.schema.names == parts and not (self._columns.has_seconds or self._options.headers):
            return batch
        columns = {part: batch.column(part) for part in parts}
        if self._columns.has_seconds:
            columns["timestamp"] = self._from_seconds(columns["timestamp"], first_row)
        if self._options.headers:
            constant = pa.scalar([{"key": key, "value": value} for key, value in self._options.headers], _HEADERS)
            columns["headers"] = pa.repeat(constant, batch.num_rows)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _from_seconds(self, seconds: pa.Array, first_row: int) -> pa.Array:
        microseconds = pc.round(pc.multiply(seconds, pa.scalar(float(_US_PER_S))))
        is_valid = pc.less(pc.abs(microseconds), pa.scalar(_MAX_US))
        if (position := _first(pc.invert(is_valid))) >= 0:
            raise TaskError(
                f"task {self._task}, row {first_row + position}: timestamp is {seconds[position]} seconds since 1970"
            )
        return pc.cast(microseconds, pa.int64()).cast(pa.timestamp("us", tz="UTC"))

    async def finish(self) -> tuple[TaskCounts, PreparedTransaction | None]:
        """Wait until all rows are acknowledged; leave the transaction prepared and close the producer.

        Raises:
            TaskError: a row was not delivered.
        """
        prepared = None
        try:
            with suppress(UndeliveredError):  # whose rows are named here
                await self._producer.flush()
            await self._raise_undelivered()
            if self._is_transactional and self._rows > self._skipped:
                prepared = await self._producer.prepare_transaction()
            elif self._is_transactional:  # brokers know of no transaction in which nothing was written
                await self._producer.abort_transaction()
        except TaskError:
            raise
        except KafkaError as error:
            raise TaskError(f"task {self._task}: {in_sparks_words(error)}") from error
        found = self._producer.statistics()
        await self._producer.close()
        counts = TaskCounts(
            rows=self._rows - self._skipped,
            bytes=found.batch_bytes,
            batches=found.batches_sent,
            retries=found.records_retried,
            skipped=self._skipped,
            partitions=tuple(PartitionRows(*place, rows) for place, rows in sorted(self._sent.items())),
        )
        return counts, prepared

    async def abandon(self) -> None:
        """Abort the transaction and close, within two seconds; a broker that does not answer times it out."""
        # What is not delivered is said by the error that is on its way.
        with anyio.move_on_after(ABORT_TIMEOUT_S), suppress(KafkaError):
            if self._is_transactional:
                await self._producer.abort_transaction()  # a close without time sends no EndTxn, and readers would wait
        with suppress(KafkaError):
            await self._producer.close(timeout=0)


class Pace:
    """Holds a task to a rate; None is no limit."""

    def __init__(self, records_per_second: int | None) -> None:
        self._rate = records_per_second
        self._free_at = time.monotonic()

    def wait_for(self, records: int) -> None:
        """Wait until so many records more may go."""
        if self._rate is None:
            return
        now = time.monotonic()
        if self._free_at > now:
            time.sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + records / self._rate


def _first(mask: pa.Array) -> int:
    """Return the position of the first true, or -1."""
    position: int = pc.index(mask, pa.scalar(True)).as_py()  # the value that is looked for
    return position


def _row_of(first_row: int, rows: pa.Array) -> Callable[[int], int]:
    return lambda position: first_row + rows[position].as_py()


def _row_among(positions: pa.Array, row_of: Callable[[int], int]) -> Callable[[int], int]:
    """Return the row of a position among some positions."""
    return lambda position: row_of(positions[position].as_py())


_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _slices(batch: pa.RecordBatch, rows: int | None) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that a slice takes a second at most."""
    if rows is None or batch.num_rows <= rows:
        yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
