"""Reads the inputs, enqueues their records, and counts the result of each line."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from aioproducer._producer.producer import Producer
from aioproducer.cli.produce.formats import (
    BadLineError,
    Content,
    Format,
    LineFormat,
    NoKeyFieldError,
    line_format,
)
from aioproducer.cli.produce.read import Chunk, Input, LineSplitter, read_chunks
from aioproducer.cli.produce.report import Tally
from aioproducer.errors import (
    BufferTimeoutError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    RecordTooLargeError,
)
from aioproducer.records import RecordMetadata

MAX_IN_FLIGHT = 100_000
"""Limit of records in flight: the buffer would hold millions of small ones."""

RECORDS_PER_TURN = 256
"""Records between two yields to the event loop."""

SINGLE_RECORD_ERRORS = (RecordTooLargeError, InvalidRecordError)
"""Errors of one record: the next one may succeed."""

MAX_CATCH_UP_S = 0.1
"""After a standstill, at most the records of this time are sent at once."""


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """The inputs, and how their records are sent."""

    topic: str
    inputs: Sequence[Input]
    format: Format = Format.LINES
    key: str | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    skip_bad_lines: bool = False
    records_per_s: float | None = None
    is_one_transaction: bool = False
    """Any record that the broker refuses then ends the run, since it cannot be left out."""


class Pace:
    """A steady rate.

    Args:
        records_per_s: above 0.
        now: monotonic seconds, when the first record is due.
    """

    __slots__ = ("_interval_s", "_next_at")

    def __init__(self, records_per_s: float, now: float) -> None:
        self._interval_s = 1 / records_per_s
        self._next_at = now

    def next_delay_s(self, now: float) -> float:
        """Schedule the next record; returns the seconds until it is due, 0 or less if it is."""
        turn = max(self._next_at, now - MAX_CATCH_UP_S)
        self._next_at = turn + self._interval_s
        return turn - now


class Feed:
    """Enqueues the records of all inputs.

    Args:
        producer: started.
        settings: the inputs, and how their records are sent.
        tally: counts every line.
        on_failure: called after a failed record that ends the run; must cancel `run`.
    """

    def __init__(
        self, producer: Producer, settings: FeedSettings, *, tally: Tally, on_failure: Callable[[], object]
    ) -> None:
        self._producer = producer
        self._settings = settings
        self._tally = tally
        self._on_failure = on_failure
        self._max_record_bytes = producer.config.max_request_size
        self._patience_s = producer.config.delivery_timeout_ms / 1000
        self._room: asyncio.Future[None] | None = None  # set while the feed waits for responses
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(settings.records_per_s, self._loop.time()) if settings.records_per_s else None
        self._first: int | None = None  # the line on which an unfinished record begins
        self._withdrawn = 0
        self._has_sent = False
        self.bytes_read: int = 0
        self.has_usage_error: bool = False
        """Whether the first CSV header lacks the field of --key; nothing was sent then."""

    async def run(self) -> None:
        """Enqueue all records; returns after the last one, or at the first invalid line.

        Raises:
            InputReadError: an input could not be read.
            KafkaError: a record could not be enqueued; it is in the tally.
        """
        async with aclosing(read_chunks(self._settings.inputs)) as chunks:
            try:
                await self._send_inputs(chunks)
            except BadLineError:
                return  # in the tally

    async def _send_inputs(self, chunks: AsyncGenerator[Chunk]) -> None:
        splitter = LineSplitter(self._max_record_bytes)
        reader = self._open_input(0)
        async for index, data in chunks:
            self.bytes_read += len(data)
            if data:
                await self._send_lines(splitter.feed(data), reader)
                continue
            await self._send_lines(splitter.finish(), reader)
            self._finish(reader)
            splitter = LineSplitter(self._max_record_bytes)
            if index + 1 < len(self._settings.inputs):
                reader = self._open_input(index + 1)

    def _open_input(self, index: int) -> LineFormat:
        settings = self._settings
        self._tally.open_input(settings.inputs[index].name)
        return line_format(settings.format, key=settings.key, max_record_bytes=self._max_record_bytes)

    async def _send_lines(self, lines: Iterable[bytes | None], reader: LineFormat) -> None:
        for line in lines:
            number = self._tally.read_line()
            first = self._first or number
            try:
                content = self._read(line, reader)
            except BadLineError as error:
                self._first = None
                self._note_bad(first, error, reader)
                continue
            self._first = first if reader.is_open else None
            if content is not None:
                await self._send(first, content)
            elif not reader.is_open:
                self._tally.blank()

    def _read(self, line: bytes | None, reader: LineFormat) -> Content | None:
        if line is None:
            reader.finish()  # a row that continues in this line has no end
            limit = f"{self._max_record_bytes:,} bytes; the limit is --property max.request.size"
            raise BadLineError("longer than a record may be", limit)
        return reader.read(line)

    def _finish(self, reader: LineFormat) -> None:
        try:
            reader.finish()
        except BadLineError as error:
            self._note_bad(self._first or self._tally.lines, error, reader)
            self._first = None

    def _note_bad(self, first: int, error: BadLineError, reader: LineFormat) -> None:
        """Count an invalid line; raises the error unless it is skipped, which a header never is."""
        is_skipped = self._settings.skip_bad_lines and not reader.needs_header
        self._tally.bad(first, error, is_skipped=is_skipped)
        self.has_usage_error = isinstance(error, NoKeyFieldError) and not self._has_sent
        if not is_skipped:
            raise error

    async def _send(self, first: int, content: Content) -> None:
        if self._pace is not None:
            await self._wait_for_turn(self._pace)
        if len(self._tally.in_flight) >= MAX_IN_FLIGHT:
            await self._wait_for_room()
        self._tally.sent(first)
        self._has_sent = True
        try:
            await self._enqueue(first, content)
        except KafkaError as error:
            self._note_failure(first, error)
            if not self._skips(error):
                raise
        if first % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        """Wait until half of the records in flight have ended."""
        self._room = self._loop.create_future()
        await self._room
        self._room = None

    async def _enqueue(self, first: int, content: Content) -> None:
        """Enqueue one record; waits for room up to the delivery time-out.

        The short `max.block.ms` of this command reports a wrong address soon, but a broker that stops for longer must
        not end the run.

        Raises:
            BufferTimeoutError: no room in that time.
            MetadataTimeoutError: the topic was unknown for that time.
            KafkaError: `enqueue` refused the record.
            CancelledError: the run ends.
        """
        settings = self._settings
        give_up_at: float | None = None
        while True:
            try:
                await self._producer.enqueue(
                    settings.topic,
                    content.value,
                    key=content.key,
                    partition=settings.partition,
                    headers=settings.headers,
                    on_delivery=partial(self._on_delivery, first),
                )
            except asyncio.CancelledError:
                self._withdrawn = first  # if it waited for room, it was never accepted
                raise
            except (BufferTimeoutError, MetadataTimeoutError):
                give_up_at = give_up_at or self._loop.time() + self._patience_s
                if self._loop.time() >= give_up_at:
                    raise
            else:
                return

    async def _wait_for_turn(self, pace: Pace) -> None:
        delay_s = pace.next_delay_s(self._loop.time())
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def _on_delivery(self, first: int, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Count the result of the record that begins at line `first`."""
        if metadata is not None:
            self._tally.delivered_at(first)
        elif (
            first != self._withdrawn
            and error is not None
            and not isinstance(error, (BufferTimeoutError, MetadataTimeoutError))
        ):
            is_skipped = self._skips(error) and not self._settings.is_one_transaction
            self._tally.failed(first, error, is_skipped=is_skipped)
            if not is_skipped:
                self._on_failure()
        room = self._room
        if room is not None and not room.done() and len(self._tally.in_flight) <= MAX_IN_FLIGHT // 2:
            room.set_result(None)

    def _note_failure(self, first: int, error: KafkaError) -> None:
        self._tally.failed(first, error, is_skipped=self._skips(error))

    def _skips(self, error: KafkaError) -> bool:
        return self._settings.skip_bad_lines and isinstance(error, SINGLE_RECORD_ERRORS)
