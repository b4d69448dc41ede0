"""The database of a relay: each method is one transaction, on one connection that the relay keeps."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchTableError

from aioproducer.outbox._errors import OutboxTableError, RelayFencedError
from aioproducer.outbox._listen import listen
from aioproducer.outbox._protocol import (
    Batch,
    Claimed,
    Run,
    State,
    StoredRow,
    Waiting,
    decode_claimed,
    encode_claimed,
    runs_of,
)
from aioproducer.outbox._tables import DIALECTS, RECORD_COLUMNS, Tables, current_ms, ms_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Row as SqlRow
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

RUNS_AT_ONCE: Final = 200
"""Runs of ids in one statement: SQLite allows 1,000 nested conditions."""
ROW_OVERHEAD: Final = 64
"""Bytes that a row counts beside its key, value and headers."""
FIRST_ROWS: Final = 100
CLOSE_S: Final = 5.0
MOST_COUNTED: Final = 100_000
ID: Final = 0
"""Key of the relay's row."""

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class Limits(NamedTuple):
    """The most that one batch has."""

    rows: int
    bytes: int


class Lease(NamedTuple):
    """The relay's row, as one that stands by sees it."""

    owner: str | None
    epoch: int
    renewals: int
    left_ms: int
    """Until the lease ends by the clock of the database."""


def uninterrupted(
    method: Callable[Concatenate[SqlStore, ParametersT], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[SqlStore, ParametersT], Coroutine[Any, Any, ResultT]]:
    """Let a transaction end where its caller is cancelled: a connection in the middle of one may keep its locks."""

    @wraps(method)
    async def run(self: SqlStore, /, *args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        task = asyncio.ensure_future(method(self, *args, **kwargs))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return await asyncio.shield(task)

    return run


class SqlStore:
    """The tables of an outbox.

    Args:
        owner: this relay, for people.
        lease_s: how long others wait for a sign of this relay.
    """

    def __init__(self, engine: AsyncEngine, tables: Tables, *, owner: str, lease_s: float, limits: Limits) -> None:
        self._engine = engine
        self._tables = tables
        self.owner = owner
        self._lease_ms = round(lease_s * 1000)
        self._limits = limits
        self.rows_parked: int = 0
        self.calls: set[asyncio.Future[Any]] = set()
        self._connection: AsyncConnection | None = None
        self._turn = asyncio.Lock()  # of the connection: the next batch is claimed while one is committed
        relay = tables.relay
        self._lock = (
            update(relay)
            .where(relay.c.id == ID, relay.c.epoch == bindparam("of_epoch"))
            .values(lease_until=current_ms() + self._lease_ms, renewals=relay.c.renewals + 1)
        )
        self._note_claim = (
            update(relay)
            .where(relay.c.id == ID)
            .values(number=bindparam("new_number"), claimed=bindparam("new_claimed"), trouble=None)
        )
        self._columns = (
            tables.rows.c.id,
            *(tables.rows.c[name] for name in RECORD_COLUMNS[:-1]),
            func.coalesce(tables.rows.c.timestamp, ms_of(tables.rows.c.created_at)).label("ms"),
        )

    # The connection

    @uninterrupted
    async def open(self) -> None:
        """Connect, and check the tables.

        Raises:
            OutboxTableError: they cannot be used.
        """
        if self._engine.dialect.name not in DIALECTS:
            raise OutboxTableError(f"the outbox works on {', '.join(DIALECTS)}, not on {self._engine.dialect.name}")
        level = "SERIALIZABLE" if self._engine.dialect.name == "sqlite" else "READ COMMITTED"
        connection = await self._engine.connect()  # interrupted here, it would stay open
        try:
            await connection.execution_options(isolation_level=level)
            await connection.run_sync(self._check_tables)
            await connection.rollback()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def close(self) -> None:
        """Give the connection back, once its last transaction has ended; drop it where that takes too long."""
        calls = [*self.calls]
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_S)
        connection, self._connection = self._connection, None
        for call in calls:
            if not call.done():
                call.cancel()
            elif not call.cancelled():
                call.exception()  # it was raised, or its caller was cancelled
        if connection is None:
            return
        if not all(call.done() for call in calls):
            await connection.invalidate()
        with suppress(DBAPIError, OSError):  # it was lost
            await connection.close()

    @asynccontextmanager
    async def _transaction(self, epoch: int | None = None) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction; with an epoch, lock the relay's row.

        Raises:
            RelayFencedError: the epoch is not the last one.
        """
        assert self._connection is not None, "open before"
        async with self._turn, self._connection.begin():
            if epoch is not None:
                locked = await self._connection.execute(self._lock, {"of_epoch": epoch})
                if locked.rowcount != 1:
                    raise RelayFencedError("another relay has taken the outbox over")
            yield self._connection

    def _check_tables(self, connection: Connection) -> None:
        for table in self._tables:
            try:
                found = {column["name"] for column in inspect(connection).get_columns(table.name, table.schema)}
            except NoSuchTableError:
                raise OutboxTableError(
                    f"there is no table {table.fullname!r}: create it with `aioproducer outbox create URL`, or by a "
                    "migration of the tables in the MetaData of Outbox(metadata=...)"
                ) from None
            missing = [column.name for column in table.columns if column.name not in found]
            if missing:
                text = f"table {table.fullname!r} has no column {', '.join(missing)}; it has {', '.join(sorted(found))}"
                raise OutboxTableError(text)
            if connection.dialect.name in {"mysql", "mariadb"}:
                engine = inspect(connection).get_table_options(table.name, table.schema).get("mysql_engine", "InnoDB")
                if str(engine).lower() != "innodb":
                    raise OutboxTableError(
                        f"table {table.fullname!r} has the engine {engine}, which cannot lock: InnoDB can"
                    )

    # Who works

    @uninterrupted
    async def lease(self) -> Lease:
        """Return who works; makes the relay's row if there is none."""
        relay = self._tables.relay
        query = select(
            relay.c.owner, relay.c.epoch, relay.c.renewals, (relay.c.lease_until - current_ms()).label("left_ms")
        ).where(relay.c.id == ID)
        async with self._transaction() as connection:
            found = (await connection.execute(query)).one_or_none()
        if found is not None:
            return Lease(*found)
        with suppress(IntegrityError):  # another relay was faster
            async with self._transaction() as connection:
                await connection.execute(insert(relay), first_state())
        return await self.lease()

    @uninterrupted
    async def take_over(self, seen: Lease) -> State | None:
        """Raise the epoch, so that no older relay claims (S1); None if another relay has done something since."""
        relay = self._tables.relay
        raised = (
            update(relay)
            .where(relay.c.id == ID, relay.c.epoch == seen.epoch, relay.c.renewals == seen.renewals)
            .values(
                epoch=relay.c.epoch + 1,
                renewals=relay.c.renewals + 1,
                owner=self.owner,
                lease_until=current_ms() + self._lease_ms,
            )
        )
        async with self._transaction() as connection:
            if (await connection.execute(raised)).rowcount != 1:
                return None
            return state_of((await connection.execute(select(relay).where(relay.c.id == ID))).one())

    @uninterrupted
    async def renew(self, epoch: int, trouble: str | None) -> None:
        """Keep the lease, and say why nothing is sent; on a connection of its own, since another call may wait.

        Raises:
            RelayFencedError: the epoch is not the last one.
        """
        async with self._engine.begin() as connection:
            locked = await connection.execute(self._lock.values(trouble=trouble), {"of_epoch": epoch})
            if locked.rowcount != 1:
                raise RelayFencedError("another relay has taken the outbox over")

    @uninterrupted
    async def release(self, epoch: int, trouble: str | None) -> None:
        """End the lease, so that another relay begins at once, and say why this one has ended."""
        relay = self._tables.relay
        ended = update(relay).where(relay.c.id == ID, relay.c.epoch == epoch)
        values = {"owner": None, "lease_until": 0, "renewals": relay.c.renewals + 1, "trouble": trouble}
        async with self._engine.begin() as connection:
            await connection.execute(ended.values(values))

    # The protocol

    @uninterrupted
    async def settle(self, state: State) -> None:
        """Write a state whose first batches may be missing, and delete the rows of those."""
        relay = self._tables.relay
        async with self._transaction(state.epoch) as connection:
            known = (await connection.execute(select(relay.c.claimed).where(relay.c.id == ID))).scalar_one()
            gone = [batch for batch in decode_claimed(known) if batch not in state.claimed]
            await delete_batches(connection, self._tables.rows, gone)
            await connection.execute(
                update(relay)
                .where(relay.c.id == ID)
                .values(
                    claimed=encode_claimed(state.claimed),
                    topic=state.topic,
                    token=state.token,
                    former_token=state.former_token,
                )
            )

    @uninterrupted
    async def claim(self, state: State, confirmed: Sequence[Batch]) -> Claimed | None:
        """Delete the rows of confirmed batches, and claim the next rows; None if there are none."""
        async with self._transaction(state.epoch) as connection:
            await delete_batches(connection, self._tables.rows, confirmed)
            found = await connection.execute(self._waiting(state.claimed))
            rows = [*map(StoredRow._make, found.all())]
            number, claimed = state.number, state.claimed
            if rows:
                number += 1
                claimed = (*claimed, Batch(number, runs_of([row.id for row in rows])))
            if rows or confirmed:
                await connection.execute(
                    self._note_claim, {"new_number": number, "new_claimed": encode_claimed(claimed)}
                )
        if not rows:
            return None
        return Claimed(claimed[-1], rows, is_full=len(rows) == self._limits.rows)

    def _waiting(self, claimed: Sequence[Batch]) -> Select[tuple[object, ...]]:
        """Select the oldest rows that are not claimed, up to the limits and at least one."""
        rows = self._tables.rows
        length = func.length if self._engine.dialect.name == "sqlite" else func.octet_length
        sizes = [func.coalesce(length(rows.c[name]), 0) for name in ("key", "value", "headers")]
        size: ColumnElement[int] = literal_column(str(ROW_OVERHEAD)) + sizes[0] + sizes[1] + sizes[2]
        free = [not_(or_(*_within(rows.c.id, runs))) for runs in _chunks(claimed)]
        oldest = select(*self._columns, size.label("size")).where(*free).order_by(rows.c.id).limit(self._limits.rows)
        inner = oldest.subquery("oldest")
        before = func.sum(inner.c.size).over(order_by=inner.c.id) - inner.c.size
        summed = select(inner, before.label("before")).subquery("summed")
        wanted = [summed.c[column.name] for column in self._columns]
        return select(*wanted).where(summed.c.before < self._limits.bytes).order_by(summed.c.id)

    @uninterrupted
    async def read(self, batch: Batch) -> Sequence[StoredRow]:
        """Read the rows of a claimed batch that still exist, in order."""
        rows = self._tables.rows
        found: list[StoredRow] = []
        async with self._transaction() as connection:
            for runs in _chunks([batch]):
                query = select(*self._columns).where(or_(*_within(rows.c.id, runs))).order_by(rows.c.id)
                found += [StoredRow._make(row) for row in await connection.execute(query)]
        return found

    @uninterrupted
    async def first_rows(self) -> Sequence[Waiting]:
        """Return some of the oldest rows, none only if there is none."""
        rows = self._tables.rows
        async with self._transaction() as connection:
            found = await connection.execute(select(rows.c.id, rows.c.topic).order_by(rows.c.id).limit(FIRST_ROWS))
            return [Waiting._make(row) for row in found]

    @uninterrupted
    async def park(self, state: State, refused: Mapping[int, str]) -> None:
        """Move rows, by id, to the parked ones, each with its error."""
        rows, parked = self._tables.rows, self._tables.parked
        kept = [rows.c[name] for name in ("id", *RECORD_COLUMNS, "created_at")]
        names = [column.name for column in kept]
        async with self._transaction(state.epoch) as connection:
            for number, error in refused.items():
                moved = select(*kept, literal(error)).where(rows.c.id == number)
                await connection.execute(insert(parked).from_select([*names, "error"], moved))
                await connection.execute(delete(rows).where(rows.c.id == number))
        self.rows_parked += len(refused)

    @uninterrupted
    async def parked_keys(self) -> frozenset[tuple[str, bytes]]:
        """Return topic and key of each parked row."""
        parked = self._tables.parked
        query = select(parked.c.topic, parked.c.key).where(parked.c.key.is_not(None)).distinct()
        async with self._transaction() as connection:
            return frozenset((topic, key) for topic, key in await connection.execute(query))

    # What waits

    async def listen(self, wake: Callable[[], object]) -> None:
        """Call `wake` when there may be new rows, until the connection for it is lost; never ends without LISTEN."""
        await listen(self._engine, self._tables.rows.name, wake)

    @uninterrupted
    async def counted(self) -> tuple[int, float | None]:
        """Return the number of rows, at most `MOST_COUNTED`, and the age of the oldest in seconds."""
        rows = self._tables.rows
        some = select(rows.c.id).limit(MOST_COUNTED).subquery()
        age = select(current_ms() - ms_of(rows.c.created_at)).order_by(rows.c.id).limit(1)
        async with self._engine.connect() as connection:
            number = (await connection.execute(select(func.count()).select_from(some))).scalar_one()
            age_ms = (await connection.execute(age)).scalar_one_or_none()
        return number, None if age_ms is None else max(age_ms, 0) / 1000


def first_state() -> dict[str, object]:
    """Return the relay's row of a new outbox."""
    return {
        "id": ID,
        "identity": secrets.token_hex(6),
        "epoch": 0,
        "number": 0,
        "claimed": "[]",
        "token": "",
        "former_token": "",
        "lease_until": 0,
        "renewals": 0,
    }


def state_of(row: SqlRow[tuple[object, ...]]) -> State:
    """Return the state that a row of the relay's table keeps."""
    return State(
        identity=row.identity,
        epoch=row.epoch,
        number=row.number,
        claimed=decode_claimed(row.claimed),
        topic=row.topic,
        token=row.token,
        former_token=row.former_token,
    )


async def delete_batches(connection: AsyncConnection, rows: Table, batches: Sequence[Batch]) -> None:
    """Delete the rows of batches."""
    for runs in _chunks(batches):
        await connection.execute(delete(rows).where(or_(*_within(rows.c.id, runs))))


def _chunks(batches: Sequence[Batch]) -> Iterator[Sequence[Run]]:
    runs = [run for batch in batches for run in batch.runs]
    return (runs[start : start + RUNS_AT_ONCE] for start in range(0, len(runs), RUNS_AT_ONCE))


def _within(column: ColumnElement[int], runs: Sequence[Run]) -> list[ColumnElement[bool]]:
    return [and_(column >= first, column <= last) for first, last in runs]
