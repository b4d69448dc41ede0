"""`Outbox`: the tables, and the calls that insert a record in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, overload

from sqlalchemy import Connection, Engine, MetaData, Transaction
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import SessionTransaction

from aioproducer.config import ProducerConfig
from aioproducer.outbox._arguments import (
    DAY_S,
    check_choice,
    check_engine,
    check_id_prefix,
    check_int,
    check_seconds,
    check_switch,
    checked_keep,
    refuse_translated,
)
from aioproducer.outbox._check import check_existing, is_creation_by_others
from aioproducer.outbox._errors import NAME
from aioproducer.outbox._kafka import ID_PREFIX, ProducerLog
from aioproducer.outbox._leases import Leases
from aioproducer.outbox._listen import listen
from aioproducer.outbox._protocol import Policy
from aioproducer.outbox._record import (
    MAX_REQUEST_SIZE,
    PendingRow,
    Row,
    RowMaker,
    record_of,
    refuse_pending,
)
from aioproducer.outbox._relay import Parts, Relay
from aioproducer.outbox._shards import MAX_SHARDS
from aioproducer.outbox._store import Limits, SqlStore
from aioproducer.outbox._tables import tables_of
from aioproducer.outbox._targets import Enqueued, Inserts, is_async
from aioproducer.outbox._transactions import begun_by
from aioproducer.outbox._upkeep import Upkeep
from aioproducer.outbox._worker import Choices, ShardWorker, Sides
from aioproducer.records import ProducerRecord

if TYPE_CHECKING:
    from typing import Unpack

    from aioproducer.config import ProducerOptions
    from aioproducer.interceptors import ProducerInterceptor
    from aioproducer.outbox._targets import AsyncTarget, SyncTarget
    from aioproducer.records import Headers
    from aioproducer.serializers import SerializerArgument

OnRefused: TypeAlias = Literal["stop", "park", "park key"]
_POLICIES: Final = {"stop": Policy(), "park": Policy(parks=True), "park key": Policy(parks=True, parks_key=True)}
BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = 4 * 1024 * 1024
LEASE_S: Final = 10.0
LEAST_LEASE_S: Final = 0.1
CREATE_ATTEMPTS: Final = 5


class Outbox:
    """A table in your database whose rows a relay sends to Kafka, each once and in order.

    ```python
    from sqlalchemy.ext.asyncio import AsyncSession

    from aioproducer.outbox import Outbox

    outbox = Outbox()


    async def note_order(session: AsyncSession, customer: bytes) -> None:
        async with session.begin():
            await outbox.enqueue(session, "orders", b"tea", key=customer)
    ```

    Args:
        name: of the table; the relay's tables have the suffixes `_relay`, `_parked` and `_sent`.
        metadata: to put the tables in, such as `Base.metadata`, for Alembic and `create_all`; None is one of its own.
        schema: of the tables.
        key_serializer: as of a producer; runs in `enqueue`.
        value_serializer: as `key_serializer`.
        interceptors: whose `on_send` sees each record in `enqueue`; the rest belongs to the relay's producer.
        max_request_size: records that take more are refused by `enqueue`; as of the relay's producer.

    Raises:
        ConfigurationError: an argument.
        TypeError: `metadata` is none.
    """

    def __init__(  # noqa: PLR0913  # two groups: tables, and what a record passes
        self,
        name: str = NAME,
        *,
        metadata: MetaData | None = None,
        schema: str | None = None,
        key_serializer: SerializerArgument | None = None,
        value_serializer: SerializerArgument | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        max_request_size: int = MAX_REQUEST_SIZE,
    ) -> None:
        self._metadata = MetaData() if metadata is None else _checked_metadata(metadata)
        self._maker = RowMaker(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
            max_request_size=max_request_size,
        )
        self._tables = tables_of(name, self._metadata, schema)
        self._inserts = Inserts(self._tables)
        self._label = f"outbox {self._tables.name}"

    @property
    def metadata(self) -> MetaData:
        """The MetaData that holds the tables."""
        return self._metadata

    @property
    def name(self) -> str:
        """Name of the table, with its schema."""
        return self._tables.name

    async def create(self, engine: AsyncEngine | Engine) -> None:
        """Create the tables that do not exist; a migration of `metadata` does the same.

        Raises:
            TypeError: not an engine.
            ConfigurationError: it has a `schema_translate_map`.
            OutboxTableError: a table that exists has another shape, or the database cannot have an outbox.
        """
        if isinstance(engine, AsyncEngine):
            async with engine.connect() as connection:
                await connection.run_sync(self._create)
        elif isinstance(engine, Engine):
            with engine.connect() as blocking:
                self._create(blocking)
        else:
            raise TypeError(f"engine must be an engine of SQLAlchemy, not {type(engine).__name__}")

    def _create(self, connection: Connection) -> None:
        """Create what does not exist; what another replica creates at the same time exists at the next attempt."""
        refuse_translated(connection.get_execution_options())
        for attempt in range(1, CREATE_ATTEMPTS + 1):
            try:
                with connection.begin():
                    self._create_once(connection)
            except DBAPIError as error:
                if attempt == CREATE_ATTEMPTS or not is_creation_by_others(error):
                    raise
            else:
                return

    def _create_once(self, connection: Connection) -> None:
        check_existing(connection, self._tables)
        self._metadata.create_all(connection, tables=list(self._tables))

    @overload
    def enqueue(
        self,
        session: AsyncTarget,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> Awaitable[None]: ...

    @overload
    def enqueue(
        self,
        session: SyncTarget,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> Enqueued: ...

    def enqueue(  # noqa: PLR0913  # a record has that many parts
        self,
        session: AsyncTarget | SyncTarget,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> Awaitable[None]:
        """Insert a record in the transaction of a session or connection; it is sent if that is committed.

        What cannot be sent is refused here, and nothing is inserted. The current trace context goes into the headers,
        where the application uses OpenTelemetry.

        Args:
            session: of SQLAlchemy, asynchronous or not, also a connection; or a connection of asyncpg, or a connection
                or cursor of psycopg, aiosqlite, asyncmy, aiomysql or of the DB-API. With one that is not asynchronous
                the row is inserted when the call returns, and what it returns need not be awaited. A session without a
                transaction begins one, also after its `close()` unless it has `close_resets_only=False`.
            topic: name of the topic; it need not exist yet.
            value: bytes, or an object for `value_serializer`; None is a tombstone.
            key: bytes, or an object for `key_serializer`.
            partition: number of the partition; None chooses one by the key, or any.
            timestamp: ms since 1970; None is the time of the insert.
            headers: (str, bytes | None) pairs.

        Raises:
            TypeError, ValueError: an argument; names it and what is allowed.
            SerializationError: a serializer failed.
            RecordTooLargeError: larger than `max_request_size`.
            NotInTransactionError: the session or connection is closed, its transaction has failed, or it commits each
                statement by itself.
            ConfigurationError: its `schema_translate_map` moves the table to another schema, or the session knows no
                engine for the table.
            OutboxTableError: the table does not exist, or a column is missing or of another type.
        """
        record = record_of(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)
        target = self._inserts.checked(session)
        return self._insert(target, [self._maker.row(record)])

    @overload
    def enqueue_many(self, session: AsyncTarget, records: Iterable[ProducerRecord]) -> Awaitable[None]: ...

    @overload
    def enqueue_many(self, session: SyncTarget, records: Iterable[ProducerRecord]) -> Enqueued: ...

    def enqueue_many(self, session: AsyncTarget | SyncTarget, records: Iterable[ProducerRecord]) -> Awaitable[None]:
        """Insert records in their order, by one call of the driver; as `enqueue` otherwise.

        What cannot be sent is refused before anything is inserted. Where the database itself refuses a row, SQLite and
        MySQL leave those before it in the transaction: roll it back.

        Args:
            session: as of `enqueue`.
            records: of any topics.

        Raises:
            TypeError, ValueError: a record; names its position.
            SerializationError, RecordTooLargeError: a record, as `enqueue`, with a note of its position.
            NotInTransactionError, ConfigurationError, OutboxTableError: as `enqueue`.
        """
        target = self._inserts.checked(session)
        return self._insert(target, self._maker.rows(records))

    def relay(  # noqa: PLR0913  # options
        self,
        engine: AsyncEngine,
        bootstrap_servers: str | Sequence[str] | ProducerConfig,
        *,
        on_refused: OnRefused = "stop",
        transactional: bool = True,
        shards: int = 1,
        keep: timedelta | float | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        lease_s: float = LEASE_S,
        id_prefix: str = ID_PREFIX,
        **options: Unpack[ProducerOptions],
    ) -> Relay:
        """Return a relay: `async with` it in each replica of the service; one works, the others stand by.

        Consumers see each row once with `isolation_level="read_committed"`.

        Args:
            engine: of SQLAlchemy, asynchronous, and not of SQLite in memory, which has one connection for all; the
                relay keeps one of its connections for each shard, and uses another one now and then.
            bootstrap_servers: as of `Producer`, with its options.
            on_refused: what to do with a row that Kafka refuses for good. "stop": neither the rest of its batch nor
                anything behind it is sent until it is accepted or skipped. "park": it is moved to the table of parked
                rows, and the others go on. "park key": later rows of its key are parked too, so that their order stays.
            transactional: False for clusters without transactions: rows are then sent at least once.
            shards: into how many parts, by key, the rows are divided; each has its own transactional id, and relays of
                several processes share them. The order of a key holds; rows without a key have none among each other,
                beyond one shard. A relay with another number stands by until no relay works, and then divides again.
            keep: how long rows are kept, in seconds or as a timedelta, in the table with the suffix `_sent`, after they
                were sent; None deletes them at once.
            batch_rows: the most in one transaction.
            batch_bytes: likewise, of keys, values and headers; a larger row is alone.
            lease_s: how long the others wait after the last sign of the one that works. A statement that the database
                does not answer for three times as long, at least 60 seconds, is given up, and the attempt with it.
            id_prefix: of the transactional id and the consumer group, for access rules; an id of the database follows.
                The same for all relays of an outbox: with another one they find no position, or an old one, and stop.
            **options: of the producer; `linger_ms` has no effect, since the rows of a batch are handed over in one go.

        Raises:
            TypeError: the engine is not asynchronous.
            ConfigurationError: an argument or option.
        """
        check_int("shards", shards, MAX_SHARDS)
        check_engine(engine, shards)
        check_choice("on_refused", on_refused, tuple(_POLICIES))
        check_switch("transactional", transactional)
        check_int("batch_rows", batch_rows)
        check_int("batch_bytes", batch_bytes)
        check_seconds("lease_s", lease_s, least=LEAST_LEASE_S, most=DAY_S)
        check_id_prefix(id_prefix)
        keep_s = checked_keep(keep)
        config = ProducerConfig.of(bootstrap_servers, options)
        new_log = partial(ProducerLog, config, prefix=id_prefix, is_exact=transactional)
        new_log()  # refuses options
        leases = Leases(engine, self._tables, lease_s=lease_s)
        limits = Limits(batch_rows, batch_bytes)
        choices = Choices(_POLICIES[on_refused], transactional, lease_s)

        def worker(shard: int, of: int, on_work: Callable[[], object]) -> ShardWorker:
            store = SqlStore(
                engine,
                self._tables,
                shard=shard,
                shards=of,
                lease_s=lease_s,
                limits=limits,
                keeps=keep_s is not None,
            )
            sides = Sides(leases, store, new_log())
            return ShardWorker(self.name, shard, of, label=self._label, sides=sides, choices=choices, on_work=on_work)

        parts = Parts(
            leases,
            Upkeep(engine, self._tables, lease_s=lease_s),
            worker,
            partial(listen, engine, self._tables.rows.name),
        )
        return Relay(self.name, parts, label=self._label, shards=shards, lease_s=lease_s, keep_s=keep_s)

    def _insert(self, target: AsyncTarget | SyncTarget, rows: Sequence[Row | PendingRow]) -> Awaitable[None]:
        if is_async(target):
            return self._insert_async(target, rows, begun=begun_by(target))
        finished: list[Row] = []
        for row in rows:
            if isinstance(row, PendingRow):
                raise refuse_pending(row)
            finished.append(row)
        if finished:
            self._inserts.insert(cast("SyncTarget", target), finished)
        return Enqueued()

    async def _insert_async(
        self,
        session: AsyncTarget,
        rows: Sequence[Row | PendingRow],
        *,
        begun: Transaction | SessionTransaction | bool,
    ) -> None:
        finished = [await self._maker.finished(row) if isinstance(row, PendingRow) else row for row in rows]
        if finished:
            await self._inserts.insert_async(session, finished, begun=begun)


def _checked_metadata(metadata: object) -> MetaData:
    if isinstance(metadata, MetaData):
        return metadata
    found = metadata.__name__ if isinstance(metadata, type) else type(metadata).__name__
    raise TypeError(f"metadata must be a MetaData of SQLAlchemy, such as Base.metadata, not {found}")
