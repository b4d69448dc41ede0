"""One run of `aioproducer produce`: connect, send the records of the inputs, flush; and its end after a signal.

The first Ctrl-C, SIGTERM or SIGHUP stops the reading and gives records in flight a bounded time; the second ends that.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import anyio

from aioproducer._producer.producer import Producer
from aioproducer.cli.inspecting import inspected
from aioproducer.cli.process import EXIT_FAILED, EXIT_SIGNAL, EXIT_USAGE, NARROW_COLUMNS, tell
from aioproducer.cli.produce.input import (
    BadLineError,
    Chunk,
    Content,
    Format,
    Input,
    InputReadError,
    LineFormat,
    LineSplitter,
    NoKeyFieldError,
    line_format,
    read_chunks,
)
from aioproducer.cli.produce.report import RunResult, Tally, TransactionOutcome
from aioproducer.cli.running import ending_signals
from aioproducer.cli.waiting import explained_wait
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    BufferTimeoutError,
    InvalidPartitionError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionTimeoutError,
    UndeliveredError,
)
from aioproducer.records import RecordMetadata

MAX_IN_FLIGHT = 100_000  # limit of records in flight: the buffer would hold millions of small ones
RECORDS_PER_TURN = 256  # records between two yields to the event loop
SINGLE_RECORD_ERRORS = (RecordTooLargeError, InvalidRecordError)  # errors of one record: the next one may succeed
MAX_CATCH_UP_S = 0.1  # after a standstill, at most the records of this time are sent at once
CLOSE_TIMEOUT_S = 2.0  # for closing connections, after everything else has ended
COMMIT_PATIENCE_S = 120.0  # how long a commit without an answer is retried; each attempt takes `max.block.ms`
LONGEST_TRANSACTION_MS = 900_000  # the default limit of brokers; reading the input is part of the transaction
REFRESH_S = 0.2  # between two updates of the progress bar


class Run:
    """One run; made on the event loop it runs on."""

    def __init__(
        self,
        config: ProducerConfig,
        settings: "FeedSettings",
        *,
        drain_timeout_s: float,
        has_progress: bool,
        listener: socket.socket | None = None,
    ) -> None:
        self.tally: Tally = Tally()
        self._config = config
        self._settings = settings
        self._drain_timeout_s = drain_timeout_s
        self._has_progress = has_progress
        self._listener = listener
        self._working = anyio.CancelScope()
        self._feeding = anyio.CancelScope()
        self._draining = anyio.CancelScope()
        self._producer: Producer | None = None
        self._feed: Feed | None = None
        self._transaction: InputTransaction | None = None
        self._signal: signal.Signals | None = None
        self._error: KafkaError | InputReadError | None = None

    async def to_end(self) -> RunResult:
        """Run; afterwards the tally has the result of every line that was read."""
        start = anyio.current_time()
        with anyio.open_signal_receiver(*ending_signals()) as signals:
            async with anyio.create_task_group() as group:
                group.start_soon(self._handle_signals, signals)
                await self._work_and_close()
                group.cancel_scope.cancel()
        for first in list(self.tally.in_flight):
            self.tally.withdrawn(first)  # its `enqueue` was cancelled while it waited for room
        return RunResult(
            topic=self._settings.topic,
            elapsed_s=anyio.current_time() - start,
            bytes_read=self._bytes_read(),
            acks=self._config.acks,
            interrupted_by=None if self._signal is None else self._signal.name,
            error=None if self._error is None else str(self._error),
            exit_code=self._exit_code(),
            transaction=None if self._transaction is None else self._transaction.outcome,
        )

    async def _handle_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if self._signal is not None:
                self._draining.cancel()
                continue
            self._signal = number
            self._working.cancel()
            if self._feed is not None:
                what = "delivering what was accepted" if self._transaction is None else "aborting the transaction"
                tell(f"\naioproducer: {what}, at most {self._drain_timeout_s:g} s; a second signal stops immediately")
                self._tell_what_waits()

    def _tell_what_waits(self) -> None:
        if self._producer is not None and self._transaction is None:  # an abort does not wait for records
            explanation = self._producer.explain()
            if explanation.waiting:
                tell(f"aioproducer: {explanation.summary}")

    async def _work_and_close(self) -> None:
        producer = self._producer = Producer(self._config)
        async with inspected(producer, self._listener):
            await self._work_and_close_producer(producer)

    async def _work_and_close_producer(self, producer: Producer) -> None:
        try:
            with self._working:
                await self._work(producer)
            if self._signal is not None and self._feed is not None:
                with self._draining:
                    await self._drain(producer)
        except KafkaError as error:
            self._error = error
        finally:
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True), suppress(UndeliveredError):
                await producer.close(timeout=0)

    async def _work(self, producer: Producer) -> None:
        what = f"{self._settings.topic} on {','.join(self._config.bootstrap_servers)}"
        at_most_s = self._config.max_block_ms / 1000
        async with explained_wait(what, at_most_s, lambda: producer.statistics().metadata_error):
            await producer.start()
            await self._check_partition(producer)
        if self._settings.is_one_transaction:
            transaction = InputTransaction(producer, self.tally)
            await producer.begin_transaction()  # aborts what an earlier run with the same id left open
            self._transaction = transaction
        self._feed = feed = Feed(producer, self._settings, tally=self.tally, on_failure=self._feeding.cancel)
        async with self._progress():
            with self._feeding:
                await self._run_feed(feed)
            await self._finish(producer)

    async def _run_feed(self, feed: "Feed") -> None:
        try:
            await feed.run()
        except InputReadError as error:
            self._error = error
        except KafkaError:
            pass  # of a record: the tally has it

    async def _finish(self, producer: Producer) -> None:
        """Wait until every record has ended, then commit or abort the transaction if there is one."""
        with suppress(KafkaError):  # the tally has the failed records
            await producer.flush()
        if self._transaction is None:
            return
        if self._error is None and self._transaction.is_complete:
            await self._transaction.commit()
        else:
            await self._transaction.abort()
            self._error = self._error or self._transaction.fenced

    async def _check_partition(self, producer: Producer) -> None:
        """Learn about the topic before anything is read."""
        partitions = await producer.partitions_for(self._settings.topic)
        partition = self._settings.partition
        if partition is not None and partition not in partitions:
            raise InvalidPartitionError(
                f"--partition {partition}: topic {self._settings.topic} has partitions 0 to {len(partitions) - 1}"
            )

    async def _drain(self, producer: Producer) -> None:
        """Give records in flight their time; with a transaction, abort it, or wait for a commit that has begun."""
        if self._transaction is None:
            with suppress(UndeliveredError):  # the tally has them
                await producer.close(timeout=self._drain_timeout_s)
            return
        with anyio.move_on_after(self._drain_timeout_s):
            if self._transaction.outcome is TransactionOutcome.UNKNOWN:
                await self._transaction.commit()
            else:
                await self._transaction.abort()

    def _progress(self) -> AbstractAsyncContextManager[None]:
        if not self._has_progress:
            return nullcontext()
        sizes = [source.size_bytes for source in self._settings.inputs]
        known = [size for size in sizes if size is not None]
        return _shown_progress(self.tally, self._bytes_read, sum(known) if len(known) == len(sizes) else None)

    def _bytes_read(self) -> int:
        return 0 if self._feed is None else self._feed.bytes_read

    def _exit_code(self) -> int:
        if self._signal is not None:
            return EXIT_SIGNAL + self._signal
        if self._has_usage_error():
            return EXIT_USAGE
        return EXIT_FAILED if self._error is not None or not self.tally.is_complete else 0

    def _has_usage_error(self) -> bool:
        """Whether the arguments do not fit the topic or the input, which was found before anything was sent."""
        if self._feed is None:
            return isinstance(self._error, InvalidPartitionError)
        return self._feed.has_usage_error


class InputTransaction:
    """The transaction of `--transactional`: all of the input becomes visible at once, or nothing does."""

    def __init__(self, producer: Producer, tally: Tally) -> None:
        self.outcome: TransactionOutcome = TransactionOutcome.OPEN
        self.fenced: ProducerFencedError | None = None  # set if another run uses the transactional id
        self._producer = producer
        self._tally = tally

    @property
    def is_complete(self) -> bool:
        """Whether only skipped lines are missing."""
        tally = self._tally
        return not tally.in_flight and all(problem.is_skipped for problem in tally.problems.values())

    async def commit(self) -> None:
        """Commit; a refused commit aborts."""
        self.outcome = TransactionOutcome.UNKNOWN
        give_up_at = asyncio.get_running_loop().time() + COMMIT_PATIENCE_S
        while self.outcome is TransactionOutcome.UNKNOWN:
            try:
                await self._producer.commit_transaction()
                self.outcome = TransactionOutcome.COMMITTED
            except TransactionTimeoutError as error:
                if asyncio.get_running_loop().time() >= give_up_at:
                    raise KafkaError(self._unknown(error)) from error
            except KafkaError as error:
                if error.outcome is Outcome.UNKNOWN:
                    raise KafkaError(self._unknown(error)) from error
                await self.abort()
                raise

    async def abort(self) -> None:
        """Abort; if no broker answers, the broker aborts the transaction at its time-out."""
        self.outcome = TransactionOutcome.ABORTED
        self._tally.delivered = 0
        self._tally.in_flight.clear()
        try:
            await self._producer.abort_transaction()
        except ProducerFencedError as error:
            self.fenced = error
        except KafkaError:
            """`close` tries again."""

    def _unknown(self, error: KafkaError) -> str:
        command = f"aioproducer txn describe {self._producer.config.transactional_id}"
        return f"whether it is committed is not known: {error}; ask: {command}"


@asynccontextmanager
async def _shown_progress(tally: Tally, bytes_read: Callable[[], int], total_bytes: int | None) -> AsyncIterator[None]:
    """Show a progress bar on standard error during the block."""
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    is_wide = console.width >= NARROW_COLUMNS
    columns = [
        *((BarColumn(bar_width=None), DownloadColumn()) if is_wide else ()),
        TextColumn("{task.fields[delivered]:,} delivered"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        *((TimeRemainingColumn(),) if is_wide else ()),
    ]
    started_at = anyio.current_time()
    with Progress(*columns, console=console, transient=True, auto_refresh=False, expand=is_wide) as progress:
        bar = progress.add_task("", total=total_bytes, delivered=0, rate=0)

        async def refresh() -> None:
            while True:
                rate = tally.delivered / max(anyio.current_time() - started_at, REFRESH_S)
                progress.update(bar, completed=bytes_read(), delivered=tally.delivered, rate=rate, refresh=True)
                await anyio.sleep(REFRESH_S)

        async with anyio.create_task_group() as group:
            group.start_soon(refresh)
            yield
            group.cancel_scope.cancel()


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
    """A steady rate."""

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
    """Enqueues the records of all inputs; `on_failure` must cancel `run` after a failed record that ends the run."""

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
        """Enqueue all records; returns after the last one, or at the first invalid line."""
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
        if self._pace is not None and (delay_s := self._pace.next_delay_s(self._loop.time())) > 0:
            await asyncio.sleep(delay_s)
        if len(self._tally.in_flight) >= MAX_IN_FLIGHT:
            await self._wait_for_room()
        self._tally.sent(first)
        self._has_sent = True
        try:
            await self._enqueue(first, content)
        except KafkaError as error:
            is_skipped = self._skips(error)
            self._tally.failed(first, error, is_skipped=is_skipped)
            if not is_skipped:
                raise
        if first % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        self._room = self._loop.create_future()
        await self._room
        self._room = None

    async def _enqueue(self, first: int, content: Content) -> None:
        """Enqueue one record; waits for room up to the delivery time-out.

        The short `max.block.ms` of this command reports a wrong address soon, but a broker that stops for longer must
        not end the run.
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

    def _skips(self, error: KafkaError) -> bool:
        return self._settings.skip_bad_lines and isinstance(error, SINGLE_RECORD_ERRORS)
