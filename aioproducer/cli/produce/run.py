"""One run of `aioproducer produce`: connect, send, flush; and its end after a signal.

The first Ctrl-C, SIGTERM or SIGHUP stops the reading and gives records in flight a bounded time; the second ends that.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

import anyio

from aioproducer._producer.producer import Producer
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_SIGNAL, EXIT_USAGE
from aioproducer.cli.inspecting import inspected
from aioproducer.cli.produce.feed import Feed, FeedSettings
from aioproducer.cli.produce.read import InputReadError
from aioproducer.cli.produce.report import RunResult, Tally, TransactionOutcome
from aioproducer.cli.running import ending_signals
from aioproducer.cli.standard_streams import NARROW_COLUMNS, tell
from aioproducer.cli.waiting import explained_wait
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    InvalidPartitionError,
    KafkaError,
    Outcome,
    ProducerFencedError,
    TransactionTimeoutError,
    UndeliveredError,
)

CLOSE_TIMEOUT_S = 2.0  # for closing connections, after everything else has ended
COMMIT_PATIENCE_S = 120.0  # how long a commit without an answer is retried; each attempt takes `max.block.ms`
LONGEST_TRANSACTION_MS = 900_000  # the default limit of brokers; reading the input is part of the transaction
REFRESH_S = 0.2  # between two updates of the progress bar


class Run:
    """One run; made on the event loop it runs on."""

    def __init__(
        self,
        config: ProducerConfig,
        settings: FeedSettings,
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

    async def _run_feed(self, feed: Feed) -> None:
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
