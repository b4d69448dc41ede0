"""`Spool`: records in a file of this machine, for a service that has no database; an outbox's relay sends them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer._logs import event_log
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError, Outcome
from aioproducer.metrics import Health, Metric, MetricKind
from aioproducer.outbox._arguments import DAY_S, MAX_AGE_S, check_choice, check_int, check_seconds
from aioproducer.outbox._errors import SpoolError, SpoolFullError
from aioproducer.outbox._outbox import BATCH_BYTES, OnRefused, Outbox
from aioproducer.outbox._record import PendingRow, Row, RowMaker, record_of
from aioproducer.outbox._spool_file import DURABLE, Bounds, Contents, Parcel, SpoolFile, size_of
from aioproducer.outbox._wake import wake_all

if TYPE_CHECKING:
    from typing import Unpack

    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from aioproducer.config import ProducerOptions
    from aioproducer.outbox._relay import Relay
    from aioproducer.records import Headers, ProducerRecord

WhenFull: TypeAlias = Literal["wait", "refuse", "drop oldest"]
_CHOICES: Final = ("wait", "refuse", "drop oldest")
MAX_BYTES: Final = 1024 * 1024 * 1024
MOST_BYTES: Final = 2**48
"""SQLite's files are not larger."""
LOCK_TIMEOUT_S: Final = 5.0
ENTRIES_AT_ONCE: Final = 1_000
"""Calls that share one transaction at most, so that the relay has its turn."""
ROOM_POLL_S: Final = 0.05
LOOK_S: Final = 5.0
"""Between looks at the file while nothing is stored: its age, and its size after the relay has deleted rows."""
FLUSH_POLL_S: Final = 0.02
DROPS_LOGGED_S: Final = 10.0
EMPTY: Final = Contents(0, 0, 0)
_GROUP: Final = "aioproducer-metrics"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatistics:
    """The result of `Spool.statistics()`. Totals count from the start, except `records_dropped`."""

    records_stored: int = 0
    """Records that the disk has; sent since or not."""

    syncs: int = 0
    """Transactions that stored them: calls that wait at the same time share one."""

    records_refused: int = 0
    """Records for which there was no room."""

    records_dropped: int = 0
    """Records that were dropped unsent since the file was made, with `when_full="drop oldest"`."""

    records_waiting: int = 0
    """Records in the file when it was looked at last, at most five seconds ago."""

    bytes_waiting: int = 0
    """What they count against `max_bytes`, with parked ones."""

    trouble: str = ""
    """Why the last attempt to store failed; empty if it did not."""


@dataclass(slots=True)
class _Counts:
    """Counts since the start."""

    contents: Contents = EMPTY
    stored: int = 0
    syncs: int = 0
    refused: int = 0
    trouble: str = ""
    defect: str = ""
    """What has ended the task; empty unless it was none of the errors that a file may have."""
    full: str = ""
    """Why there was no room at the last attempt; empty once a record has left since."""
    drops_logged: int = 0
    drops_logged_at: float = 0.0


class _Entry(NamedTuple):
    """One call that waits until its rows are stored."""

    parcel: Parcel
    stored: asyncio.Future[None]


class Spool:
    """Records in a SQLite file, on disk when `enqueue` returns, and sent once when the brokers are there.

    ```python
    from aioproducer.outbox import Spool

    async with Spool("spool.db", "localhost:9092") as spool:
        await spool.enqueue("events", b"...", key=b"device-7")
    ```

    Start it with or without brokers. What was not sent when it ends is sent after its next start. Several processes may
    use one file. Consumers see each record once with `isolation_level="read_committed"`.

    Args:
        path: of the file, on a local disk; it is made if it does not exist.
        bootstrap_servers: as of `Producer`, with its options; serializers and the `on_send` of interceptors run in
            `enqueue`.
        when_full: what `enqueue` does beyond `max_bytes` or `max_age_s`. "wait": until there is room. "refuse": raise
            `SpoolFullError`. "drop oldest": delete the oldest records unsent, and count them.
        max_bytes: that the records in the file take; the file itself is somewhat larger, and does not shrink.
        max_age_s: how long the oldest record may wait; None is any time.
        lock_timeout_s: how long an attempt waits while another process locks the file.
        on_refused: as of `Outbox.relay`: what to do with a record that Kafka refuses for good.
        transactional: likewise; False for clusters without transactions, which get records at least once.
        **options: of the producer.

    Raises:
        ConfigurationError: an argument or option.
        ModuleNotFoundError: aiosqlite is not installed; it comes with the extra `spool`.
    """

    def __init__(  # noqa: PLR0913  # options
        self,
        path: str | PathLike[str],
        bootstrap_servers: str | Sequence[str] | ProducerConfig,
        *,
        when_full: WhenFull = "wait",
        max_bytes: int = MAX_BYTES,
        max_age_s: float | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        on_refused: OnRefused = "stop",
        transactional: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._path = _checked_path(path)
        bounds = _checked_bounds(when_full, max_bytes, max_age_s)
        check_seconds("lock_timeout_s", lock_timeout_s, most=DAY_S)
        config = ProducerConfig.of(bootstrap_servers, options)
        self._maker = RowMaker(
            key_serializer=config.key_serializer,
            value_serializer=config.value_serializer,
            interceptors=config.interceptors,
            max_request_size=config.max_request_size,
        )
        self._label = f"spool {self._path.name}"
        outbox = Outbox()
        outbox._label = self._label  # noqa: SLF001  # of the same package
        self._name = outbox.name
        self._bounds = bounds
        self._file = SpoolFile(self._path, outbox._tables, bounds, lock_timeout_s=lock_timeout_s)  # noqa: SLF001  # of the same package
        self._engine = _engine(self._path, lock_timeout_s)
        self._relay = outbox.relay(
            self._engine,
            config.replace(key_serializer=None, value_serializer=None, interceptors=()),
            on_refused=on_refused,
            transactional=transactional,
            batch_bytes=max(min(BATCH_BYTES, max_bytes // 4), 1),  # what is being sent cannot be dropped
        )
        self._events = event_log(self._label)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aioproducer-spool")
        self._entries: deque[_Entry] = deque()
        self._given = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_begun = self._is_closed = False
        self._counts = _Counts()

    # Start and close

    async def start(self) -> Self:
        """Open the file, and begin to send what it holds; brokers need not be there. A spool is started once.

        Raises:
            SpoolError: the file cannot be used, or the spool is closed.
        """
        if self._is_closed:
            raise SpoolError(f"spool {str(self._path)!r} is closed: make another one")
        if self._is_begun:
            return self
        self._is_begun, self._loop = True, asyncio.get_running_loop()
        try:
            self._counts.contents = await self._in_thread(self._file.open)
            self._counts.drops_logged = self._counts.contents.dropped
            with suppress(SpoolError):  # the next look tells it
                # What is too old is dropped before it is sent.
                self._counts.contents = await self._in_thread(self._file.look)
        except BaseException:
            self._is_closed = True
            self._thread.submit(self._file.close)  # cancelled, it may be open by now
            self._thread.shutdown(wait=False)
            raise
        self._task = asyncio.create_task(self._run(), name=f"aioproducer-spool | {self._path.name}")
        await self._relay.start()
        return self

    async def close(self) -> None:
        """Store what was given, and stop sending: the rest stays in the file, and is sent after the next start.

        Calls that wait for room get `SpoolFullError`. `flush` before it waits until everything was sent.

        Raises:
            SpoolError: the spool was started on another event loop.
        """
        if self._is_closed:
            return
        is_orphaned = self._loop is not None and self._loop.is_closed()
        if self._loop is not None and not is_orphaned:
            self._own_loop()
        self._is_closed = True
        task = self._task
        if task is None or is_orphaned:
            self._thread.submit(self._file.close)
            self._thread.shutdown(wait=False)
            return
        self._given.set()
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()  # only if this call was cancelled; the entries get an error then
            await self._relay.close()
            await self._engine.dispose()
            await self._in_thread(self._file.close)
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # What it does

    async def enqueue(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Store a record, and return when the disk has it; calls that wait at the same time share one sync.

        A call that is cancelled may have stored its record. Arguments are those of `Outbox.enqueue`.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            SerializationError, RecordTooLargeError: as `Outbox.enqueue`.
            SpoolFullError: there is no room, or never will be: the record is larger than `max_bytes`.
            SpoolError: the spool is not open, or was started on another event loop, or the file cannot be written: disk
                full, locked, read-only, deleted.
        """
        loop = self._checked_loop()
        record = record_of(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)
        row = self._maker.row(record)
        await self._store([await self._finished(row) if isinstance(row, PendingRow) else row], loop)

    async def enqueue_many(self, records: Iterable[ProducerRecord]) -> None:
        """Store records in their order, all or none; as `enqueue` otherwise.

        Raises:
            TypeError, ValueError: a record; names its position.
            SerializationError, RecordTooLargeError, SpoolFullError, SpoolError: as `enqueue`.
        """
        loop = self._checked_loop()
        made = self._maker.rows(records)
        rows = [await self._finished(row) if isinstance(row, PendingRow) else row for row in made]
        if rows:
            await self._store(rows, loop)

    async def flush(self) -> None:
        """Wait until every record in the file was sent; limit it with `asyncio.timeout`.

        Raises:
            SpoolError: the spool is not open, or its file cannot be read.
        """
        pause_s = FLUSH_POLL_S
        while True:
            self._checked_loop()
            self._note_contents(await self._in_thread(self._file.look))
            if not self._counts.contents.rows:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 10 * FLUSH_POLL_S)

    @property
    def relay(self) -> Relay:
        """The relay that sends the records: its statistics, and whether the brokers are there."""
        return self._relay

    def statistics(self) -> SpoolStatistics:
        """Return a snapshot of counters and gauges."""
        return SpoolStatistics(
            records_stored=self._counts.stored,
            syncs=self._counts.syncs,
            records_refused=self._counts.refused,
            records_dropped=self._counts.contents.dropped,
            records_waiting=self._counts.contents.rows,
            bytes_waiting=self._counts.contents.bytes,
            trouble=self._counts.trouble,
        )

    def health(self) -> Health:
        """Return whether records can be stored; `relay.health()` says whether they are sent."""
        if self._task is None or self._is_closed:
            return Health(
                is_ready=False, reason="the spool is closed" if self._is_closed else "the spool is not started"
            )
        reason = self._why_ended() or self._counts.trouble or self._counts.full
        return Health(is_ready=not reason, reason=reason)

    def metrics(self) -> list[Metric]:
        """Return the metrics of the spool and its relay; `ProducerCollector(spool)` shows them to Prometheus."""
        found = self.statistics()
        tags = {"client-id": self._label}
        counters = {
            "spool-records-stored-total": found.records_stored,
            "spool-records-refused-total": found.records_refused,
            "spool-records-dropped-total": found.records_dropped,
        }
        gauges = {"spool-records-waiting": found.records_waiting, "spool-bytes-waiting": found.bytes_waiting}
        return [
            *self._relay.metrics(),
            *(Metric(name, _GROUP, tags, value, MetricKind.COUNTER) for name, value in counters.items()),
            *(Metric(name, _GROUP, tags, value, MetricKind.GAUGE) for name, value in gauges.items()),
        ]

    # Its task

    async def _finished(self, row: PendingRow) -> Row:
        finished = await self._maker.finished(row)
        self._checked_loop()  # it may have been closed meanwhile
        return finished

    async def _store(self, rows: Sequence[Row], loop: asyncio.AbstractEventLoop) -> None:
        size = sum(map(size_of, rows))
        if size > self._bounds.bytes:
            self._counts.refused += len(rows)
            raise self._error_of_room(f"this takes {size:,} bytes, more than max_bytes={self._bounds.bytes:,}")
        stored: asyncio.Future[None] = loop.create_future()
        self._entries.append(_Entry(Parcel(rows, size), stored))
        self._given.set()
        await stored

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of a spool that is open."""
        if self._task is None or self._is_closed:
            what = "is closed" if self._is_closed else "is not started: use `async with`, or await start()"
            raise self._error_of_call(what)
        if reason := self._why_ended():
            raise self._error_of_call(f"cannot store: {reason}")
        return self._own_loop()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()  # once in a call: it asks the system for the process, before Python 3.12
        if self._loop is not loop:
            raise self._error_of_call(
                "was called from another event loop or thread than the one that started it: use "
                "asyncio.run_coroutine_threadsafe(...) with that loop, or start a spool on each loop; they may use one "
                "file"
            )
        return loop

    def _why_ended(self) -> str:
        """Return why nothing is stored any more by a spool that was not closed; empty without."""
        if self._loop is not None and self._loop.is_closed():
            return "the event loop on which the spool was started is closed"
        if self._task is None or not self._task.done():
            return ""
        defect = self._counts.defect
        return f"the task of the spool has ended: {defect}" if defect else "the task of the spool was cancelled"

    def _error_of_call(self, what: str) -> SpoolError:
        return SpoolError(f"spool {str(self._path)!r} {what}", outcome=Outcome.NOT_WRITTEN)

    async def _run(self) -> None:
        """Store what is given, all that waits by one transaction, until the spool is closed."""
        taken: list[_Entry] = []
        try:
            while self._entries or not self._is_closed:
                taken = self._take()
                if taken:
                    await self._store_entries(taken)
                elif not self._entries and not self._is_closed:
                    await self._until_given()
        except Exception as defect:
            self._events.error("spool_ended", error=repr(defect), exc_info=defect)
            self._counts.defect = f"{type(defect).__name__}: {defect}"
            raise
        finally:
            why = self._counts.defect or "the spool was cancelled as it closed"
            for entry in [*taken, *self._entries]:
                _fail(entry, SpoolError(f"the record may not be stored: {why}", outcome=Outcome.UNKNOWN))

    def _take(self) -> list[_Entry]:
        number = min(len(self._entries), ENTRIES_AT_ONCE)
        found = [self._entries.popleft() for _ in range(number)]
        return [entry for entry in found if not entry.stored.cancelled()]

    async def _store_entries(self, entries: list[_Entry]) -> None:
        try:
            faults, contents = await self._in_thread(lambda: self._file.store([each.parcel for each in entries]))
        except SpoolError as error:
            self._note_trouble(error)
            for entry in entries:
                _fail(entry, error.fresh())
            return
        self._counts.trouble = ""
        self._note_contents(contents)
        self._counts.full = next(filter(None, faults), "")
        late = [entry for entry, fault in zip(entries, faults, strict=True) if not self._settle(entry, fault)]
        if not all(faults):
            self._counts.syncs += 1
            wake_all(self._name)
        if late:
            self._entries.extendleft(reversed(late))
            await asyncio.sleep(ROOM_POLL_S)

    def _settle(self, entry: _Entry, fault: str) -> bool:
        """Return whether a call is answered; otherwise it waits for room."""
        number = len(entry.parcel.rows)
        if not fault:
            self._counts.stored += number
            if not entry.stored.done():
                entry.stored.set_result(None)
        elif self._bounds.waits and not self._is_closed:
            return False
        else:
            self._counts.refused += number
            _fail(entry, self._error_of_room(fault))
        return True

    async def _until_given(self) -> None:
        """Wait for a call; look at the file meanwhile."""
        self._given.clear()
        try:
            async with asyncio.timeout(LOOK_S):
                await self._given.wait()
        except TimeoutError:
            try:
                if self._counts.trouble:
                    await self._in_thread(self._file.check_writable)
                    self._counts.trouble = ""
                self._note_contents(await self._in_thread(self._file.look))
            except SpoolError as error:
                self._note_trouble(error)

    def _note_contents(self, contents: Contents) -> None:
        if contents.bytes < self._counts.contents.bytes:
            self._counts.full = ""
        self._counts.contents = contents
        new = contents.dropped - self._counts.drops_logged
        if new and monotonic() - self._counts.drops_logged_at > DROPS_LOGGED_S:
            self._events.warning("spool_dropped", records=new)
            self._counts.drops_logged = contents.dropped
            self._counts.drops_logged_at = monotonic()

    def _note_trouble(self, error: SpoolError) -> None:
        if str(error) != self._counts.trouble:
            self._events.error("spool_not_stored", error=str(error))
        self._counts.trouble = str(error)

    def _error_of_room(self, fault: str) -> SpoolFullError:
        return SpoolFullError(f"spool {str(self._path)!r} is full: {fault}", outcome=Outcome.NOT_WRITTEN)

    async def _in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _fail(entry: _Entry, error: SpoolError) -> None:
    if not entry.stored.done():
        entry.stored.set_exception(error)


def _checked_path(path: str | PathLike[str]) -> Path:
    if not isinstance(path, str | PathLike) or not isinstance(fspath(path), str):
        raise ConfigurationError(f"path must be a str or a path, not {type(path).__name__}")
    text = fspath(path)
    if not text or text.startswith((":memory:", "file:")) or "://" in text:
        raise ConfigurationError(f"path must be the path of a file, as 'spool.db', not {text!r}")
    return Path(text).absolute()  # the relay opens it too, perhaps in another working directory


def _checked_bounds(when_full: str, max_bytes: int, max_age_s: float | None) -> Bounds:
    check_choice("when_full", when_full, _CHOICES)
    check_int("max_bytes", max_bytes, MOST_BYTES)
    if max_age_s is not None:
        check_seconds("max_age_s", max_age_s, most=MAX_AGE_S)
    return Bounds(max_bytes, max_age_s, waits=when_full == "wait", drops=when_full == "drop oldest")


def _engine(path: Path, lock_timeout_s: float) -> AsyncEngine:
    """Return the relay's engine; what it claims must be on disk before Kafka has it."""
    url = URL.create("sqlite+aiosqlite", database=str(path))
    try:
        engine = create_async_engine(url, connect_args={"timeout": lock_timeout_s})
    except ModuleNotFoundError as error:
        if error.name != "aiosqlite":
            raise
        raise ModuleNotFoundError("Spool needs aiosqlite: pip install 'aioproducer[spool]'", name=error.name) from error
    event.listen(engine.sync_engine, "connect", _make_durable)
    return engine


def _make_durable(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in DURABLE:
        cursor.execute(pragma)
    cursor.close()
