"""One run of `aioproducer produce` from start to end: connect, send, flush; what a signal does meanwhile.

The first Ctrl-C, SIGTERM or SIGHUP stops the reading and gives what was handed over a bounded time; the second ends
that.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import UTC, datetime

import anyio

from aioproducer._producer.producer import Producer
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_SIGNAL, EXIT_USAGE
from aioproducer.cli.producing.feed import Feed, FeedSettings
from aioproducer.cli.producing.inputs import InputReadError
from aioproducer.cli.producing.report import TransactionResult
from aioproducer.cli.producing.tally import Tally
from aioproducer.cli.producing.whole_input import Fate, WholeInput
from aioproducer.cli.running import ending_signals
from aioproducer.cli.standard_streams import tell
from aioproducer.cli.waiting import explained_wait
from aioproducer.config import ProducerConfig
from aioproducer.errors import InvalidPartitionError, KafkaError, UndeliveredError

CLOSE_TIMEOUT_S = 2.0
"""For letting connections go; everything that matters has happened by then."""


class Run:
    """One run; made on the event loop it runs on.

    Args:
        config: of the producer.
        settings: what is sent, and how.
        drain_timeout_s: how long what was handed over may take after a signal.
        has_progress: show a progress bar.
    """

    def __init__(
        self, config: ProducerConfig, settings: FeedSettings, *, drain_timeout_s: float, has_progress: bool
    ) -> None:
        self.tally = Tally()
        self._config = config
        self._settings = settings
        self._drain_timeout_s = drain_timeout_s
        self._has_progress = has_progress
        self._working = anyio.CancelScope()
        self._feeding = anyio.CancelScope()
        self._draining = anyio.CancelScope()
        self._feed: Feed | None = None
        self._whole: WholeInput | None = None
        self._signal: signal.Signals | None = None
        self._error: KafkaError | InputReadError | None = None

    async def to_end(self) -> TransactionResult:
        """Do it all; whatever happens, the tally then knows what became of every line read."""
        started_at, start = datetime.now(UTC), anyio.current_time()
        with anyio.open_signal_receiver(*ending_signals()) as signals:
            async with anyio.create_task_group() as group:
                group.start_soon(self._heed, signals)
                await self._work_and_close()
                group.cancel_scope.cancel()
        for first in list(self.tally.under_way):
            self.tally.withdrawn(first)  # closed and no answer: it was taken back while it waited for room
        return TransactionResult(
            topic=self._settings.topic,
            bootstrap_servers=",".join(self._config.bootstrap_servers),
            started_at=started_at,
            elapsed_s=anyio.current_time() - start,
            bytes_read=self._bytes_read(),
            acks=self._config.acks,
            interrupted_by=None if self._signal is None else self._signal.name,
            error=None if self._error is None else str(self._error),
            exit_code=self._exit_code(),
            transaction=None if self._whole is None else self._whole.fate,
        )

    async def _heed(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if self._signal is None:
                self._signal = number
                self._working.cancel()
                if self._feed is not None:
                    tell(f"\naioproducer: {self._what_is_left()}; again to end at once")
            else:
                self._draining.cancel()

    def _what_is_left(self) -> str:
        what = "delivering what was accepted" if self._whole is None else "aborting the transaction"
        return f"{what}, at most {self._drain_timeout_s:g} s"

    async def _work_and_close(self) -> None:
        producer = Producer(self._config)
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
            whole = WholeInput(producer, self.tally)
            await whole.begin()
            self._whole = whole
        self._feed = feed = Feed(producer, self._settings, tally=self.tally, on_failure=self._feeding.cancel)
        async with self._progress():
            with self._feeding:
                await self._run_feed(feed)
            await self._finish(producer)

    async def _finish(self, producer: Producer) -> None:
        """Wait until every record has ended; with a transaction, end that too."""
        await _flush(producer)
        if self._whole is None:
            return
        if self._error is None and self._whole.is_whole:
            await self._whole.commit()
        else:
            await self._whole.abort()
            self._error = self._error or self._whole.fenced

    async def _run_feed(self, feed: Feed) -> None:
        try:
            await feed.run()
        except InputReadError as error:
            self._error = error
        except KafkaError:
            pass  # of a record: the tally has it

    async def _check_partition(self, producer: Producer) -> None:
        """Know the topic before anything is read.

        Raises:
            InvalidPartitionError: the topic has no such partition.
            KafkaError: the topic cannot be had.
        """
        partitions = await producer.partitions_for(self._settings.topic)
        partition = self._settings.partition
        if partition is not None and partition not in partitions:
            raise InvalidPartitionError(
                f"--partition {partition}: topic {self._settings.topic} has partitions 0 to {len(partitions) - 1}"
            )

    async def _drain(self, producer: Producer) -> None:
        if self._whole is None:
            with suppress(UndeliveredError):  # the tally has them
                await producer.close(timeout=self._drain_timeout_s)
            return
        with anyio.move_on_after(self._drain_timeout_s):
            await self._give_up(self._whole)

    @staticmethod
    async def _give_up(whole: WholeInput) -> None:
        """A signal came. A commit that is under way is waited for: it cannot be called back."""
        await (whole.commit() if whole.fate is Fate.UNKNOWN else whole.abort())

    def _progress(self) -> AbstractAsyncContextManager[None]:
        if not self._has_progress:
            return nullcontext()
        from aioproducer.cli.producing.progress import shown_progress  # noqa: PLC0415 - rich, on a terminal only

        sizes = [source.size_bytes for source in self._settings.inputs]
        known = [size for size in sizes if size is not None]
        return shown_progress(self.tally, self._bytes_read, sum(known) if len(known) == len(sizes) else None)

    def _bytes_read(self) -> int:
        return 0 if self._feed is None else self._feed.bytes_read

    def _exit_code(self) -> int:
        if self._signal is not None:
            return EXIT_SIGNAL + self._signal
        if self._was_asked_wrongly():
            return EXIT_USAGE
        return EXIT_FAILED if self._error is not None or not self.tally.is_complete else 0

    def _was_asked_wrongly(self) -> bool:
        """Whether the topic or the input showed, before anything was sent, that the arguments cannot be meant."""
        if self._feed is None:
            return isinstance(self._error, InvalidPartitionError)
        return self._feed.was_asked_wrongly


async def _flush(producer: Producer) -> None:
    """Wait until every record has ended; the tally has heard of those that failed."""
    with suppress(KafkaError):
        await producer.flush()
