"""The database of a working relay: each method is one transaction, on one connection that the relay keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    not_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from aioproducer.outbox._calls import ended, limit_of, uninterrupted
from aioproducer.outbox._check import check_dialect, check_tables
from aioproducer.outbox._errors import DECISIONS, RelayFencedError, waits_for
from aioproducer.outbox._protocol import (
    Batch,
    Claimed,
    State,
    StoredRow,
    Waiting,
    decode_claimed,
    encode_claimed,
    runs_in,
    runs_of,
)
from aioproducer.outbox._shards import add_hash, of_shard
from aioproducer.outbox._tables import (
    IDS_AT_ONCE,
    RECORD_COLUMNS,
    ROW_OVERHEAD,
    Tables,
    current_ms,
    current_time,
    ids_within,
    ms_of,
    transacting,
    waiting_for_disk,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult
    from sqlalchemy.engine import Row as SqlRow
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

FIRST_ROWS: Final = 100

ValueT = TypeVar("ValueT")


class Limits(NamedTuple):
    """The most that one batch has."""

    rows: int
    bytes: int


class SqlStore:
    """The rows of one shard.

    Args:
        lease_s: how long others wait for a sign of this relay.
        keeps: whether rows are moved to the table of sent rows, not deleted.
    """

    def __init__(  # noqa: PLR0913  # what, where, and how much
        self,
        engine: AsyncEngine,
        tables: Tables,
        *,
        shard: int = 0,
        shards: int = 1,
        lease_s: float,
        limits: Limits,
        keeps: bool = False,
    ) -> None:
        self._engine = transacting(engine)
        self._tables = tables
        self._condition = of_shard(tables.rows, shard, shards)
        self._shards = shards
        self._limits = limits
        self._keeps = keeps
        self.rows_parked: int = 0
        self.calls: set[asyncio.Future[Any]] = set()
        self.limit_s: float = limit_of(lease_s)
        self._connection: AsyncConnection | None = None
        self._turn = asyncio.Lock()  # of the connection: the next batch is claimed while one is committed
        relay = tables.relay
        self._lock = waiting_for_disk(  # a claim must be on disk before Kafka has its rows
            update(relay)
            .where(
                relay.c.id == shard,
                relay.c.identity == bindparam("of_identity"),
                relay.c.epoch == bindparam("of_epoch"),
            )
            .values(lease_until=current_ms() + round(lease_s * 1000), renewals=relay.c.renewals + 1),
            engine.dialect.name,
        )
        self._own = relay.c.id == shard
        self._note_claim = (
            update(relay)
            .where(self._own)
            .values(number=bindparam("new_number"), claimed=bindparam("new_claimed"), trouble=None)
        )
        self._columns = (
            tables.rows.c.id,
            *(tables.rows.c[name] for name in RECORD_COLUMNS[:-1]),
            func.coalesce(tables.rows.c.timestamp, ms_of(tables.rows.c.created_at)).label("timestamp"),
        )
        # InnoDB locks the row behind a range too, which may be of a transaction that is open for long.
        self._locks_ranges = engine.dialect.name in {"mysql", "mariadb"}
        # To make a statement takes longer than to execute it, so those of nearly all batches, one run of ids, are made
        # once.
        self._in_run = tables.rows.c.id.between(bindparam("first"), bindparam("last"))
        self._waiting = self._select_waiting([])
        self._waiting_beside_run = self._select_waiting([self._in_run])
        self._delete_run = delete(tables.rows).where(self._in_run)

    # The connection

    @uninterrupted
    async def open(self) -> None:
        """Connect, and check the tables.

        Raises:
            OutboxTableError: they cannot be used.
        """
        check_dialect(self._engine.dialect)
        tables = [*self._tables.needed, *([self._tables.sent] if self._keeps else [])]
        connection = await self._engine.connect()  # interrupted here, it would stay open
        try:
            await connection.run_sync(check_tables, tables)
            if self._shards > 1:
                await add_hash(connection)
            await connection.commit()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def close(self) -> None:
        """Give the connection back, once its last transaction has ended; drop it where that takes too long."""
        have_ended = await ended(self)
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if not have_ended:
            await connection.invalidate()
        with suppress(DBAPIError, OSError):  # it was lost
            await connection.close()

    @asynccontextmanager
    async def _transaction(self, state: State | None = None) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction; with a state, lock the row of the shard.

        Raises:
            RelayFencedError: the epoch of the state is not the last one.
        """
        assert self._connection is not None, "open before"
        async with self._turn, self._connection.begin():
            if state is not None:
                of = {"of_identity": state.identity, "of_epoch": state.epoch}
                locked = await self._connection.execute(self._lock, of)
                if locked.rowcount != 1:
                    raise RelayFencedError("another relay has taken the outbox over")
            yield self._connection

    # The protocol

    @uninterrupted
    async def settle(self, state: State) -> None:
        """Write a state whose first batches may be missing, and remove the rows of those."""
        relay = self._tables.relay
        async with self._transaction(state) as connection:
            known = (await connection.execute(select(relay.c.claimed, relay.c.trouble).where(self._own))).one()
            gone = [batch for batch in decode_claimed(known.claimed) if batch not in state.claimed]
            await self._remove(connection, gone)
            await connection.execute(
                update(relay)
                .where(self._own)
                .values(
                    claimed=encode_claimed(state.claimed),
                    topic=state.topic,
                    token=state.token,
                    former_token=state.former_token,
                    trouble=None if waits_for(DECISIONS, known.trouble) else known.trouble,  # a doubt is over
                )
            )

    @uninterrupted
    async def forget_topic(self, state: State, committed: Collection[int]) -> None:
        """Remove the rows of the batches of these numbers, and note that no other one is committed, in no topic."""
        relay = self._tables.relay
        async with self._transaction(state) as connection:
            # As the table has them: another claim, whose answer was lost, may have added a batch.
            known = decode_claimed((await connection.execute(select(relay.c.claimed).where(self._own))).scalar_one())
            await self._remove(connection, [batch for batch in known if batch.number in committed])
            left = encode_claimed([batch for batch in known if batch.number not in committed])
            await connection.execute(update(relay).where(self._own).values(claimed=left, topic=None))

    @uninterrupted
    async def claim(self, state: State, confirmed: Sequence[Batch]) -> Claimed | None:
        """Remove the rows of confirmed batches, and claim the next rows; None if there are none."""
        async with self._transaction(state) as connection:
            await self._remove(connection, confirmed)
            rows = _stored((await self._find_waiting(connection, state.claimed)).all())
            number, claimed = state.number, state.claimed
            if rows:
                number += 1
                claimed = (*claimed, Batch(number, runs_of([row[0] for row in rows])))
            if rows or confirmed:
                await connection.execute(
                    self._note_claim, {"new_number": number, "new_claimed": encode_claimed(claimed)}
                )
        if not rows:
            return None
        return Claimed(claimed[-1], rows, is_full=self._is_full(rows))

    def _is_full(self, rows: Sequence[StoredRow]) -> bool:
        """Return whether a limit has ended the claim; the statement counts the same, but for headers beyond ASCII."""
        if len(rows) == self._limits.rows:
            return True
        try:
            size = sum(len(row[2] or b"") + len(row[3] or b"") + len(row[4] or "") for row in rows)
        except TypeError:  # of a number, which SQLite takes for bytes: the row will be refused
            return False
        return size + len(rows) * ROW_OVERHEAD >= self._limits.bytes

    async def _find_waiting(
        self, connection: AsyncConnection, claimed: Sequence[Batch]
    ) -> CursorResult[tuple[object, ...]]:
        """Find the oldest rows that are not claimed, up to the limits and at least one."""
        if not claimed:
            return await connection.execute(self._waiting)
        if (run := _only_run(claimed)) is not None:
            return await connection.execute(self._waiting_beside_run, run)
        return await connection.execute(self._select_waiting(self._within(claimed)))

    def _select_waiting(self, claimed: Iterable[ColumnElement[bool]]) -> Select[tuple[object, ...]]:
        rows = self._tables.rows
        length = func.length if self._engine.dialect.name == "sqlite" else func.octet_length
        sizes = [func.coalesce(length(rows.c[name]), 0) for name in ("key", "value", "headers")]
        size: ColumnElement[int] = literal_column(str(ROW_OVERHEAD)) + sizes[0] + sizes[1] + sizes[2]
        wanted = [*self._condition, *map(not_, claimed)]
        oldest = select(*self._columns, size.label("size")).where(*wanted).order_by(rows.c.id).limit(self._limits.rows)
        inner = oldest.subquery("oldest")
        before = func.sum(inner.c.size).over(order_by=inner.c.id) - inner.c.size
        summed = select(inner, before.label("before")).subquery("summed")
        columns = [summed.c[column.name] for column in self._columns]
        return select(*columns).where(summed.c.before < self._limits.bytes).order_by(summed.c.id)

    @uninterrupted
    async def read(self, batch: Batch) -> Sequence[StoredRow]:
        """Read the rows of a claimed batch that still exist, in order."""
        found: list[StoredRow] = []
        async with self._transaction() as connection:
            for within in self._within([batch]):
                query = select(*self._columns).where(within)
                found += _stored((await connection.execute(query)).all())
        return sorted(found, key=lambda row: row.id)

    @uninterrupted
    async def first_rows(self) -> Sequence[Waiting]:
        """Return some of the oldest rows, none only if there is none."""
        rows = self._tables.rows
        oldest = select(rows.c.id, rows.c.topic).where(*self._condition).order_by(rows.c.id).limit(FIRST_ROWS)
        async with self._transaction() as connection:
            found = await connection.execute(oldest)
            return [Waiting._make(row) for row in found]

    @uninterrupted
    async def park(self, state: State, refused: Mapping[int, str]) -> None:
        """Move rows, by id, to the parked ones, each with its error, and write the claims without them."""
        rows, parked = self._tables.rows, self._tables.parked
        kept = [rows.c[name] for name in ("id", *RECORD_COLUMNS, "created_at")]
        names = [column.name for column in kept]
        known = select(parked.c.id).where(parked.c.id.in_(bindparam("ids", expanding=True)))
        async with self._transaction(state) as connection:
            taken = {
                each
                for ids in _parts(list(refused))
                for each in (await connection.execute(known, {"ids": ids})).scalars()
            }
            least = (await connection.execute(select(func.min(parked.c.id)))).scalar_one() or 0 if taken else 0
            # After a TRUNCATE ids begin again: a row whose id a parked one has gets one below all of them.
            free = dict(zip(sorted(taken), count(min(least, 0) - 1, -1), strict=False))
            for number, error in refused.items():
                id_ = literal(free.get(number, number), BigInteger).label("id")
                moved = select(id_, *kept[1:], literal(error)).where(rows.c.id == number)
                await connection.execute(insert(parked).from_select([*names, "error"], moved))
                await connection.execute(delete(rows).where(rows.c.id == number))
            claimed = encode_claimed(state.claimed)
            await connection.execute(update(self._tables.relay).where(self._own).values(claimed=claimed))
        self.rows_parked += len(refused)

    @uninterrupted
    async def parked_keys(self, rows: Sequence[StoredRow]) -> Mapping[tuple[str, bytes], int]:
        """Return topic and key of the parked rows that have those of one of these, with the first id of each."""
        topic, key, id_ = (self._tables.parked.c[name] for name in ("topic", "key", "id"))
        parked = select(topic, key, func.min(id_)).where(key.is_not(None)).group_by(topic, key)
        keys = list(
            {row.key for row in rows if isinstance(row.key, bytes)}
        )  # SQLite may have others, which are refused
        found: dict[tuple[str, bytes], int] = {}
        async with self._transaction() as connection:
            is_any = (await connection.execute(select(id_).where(key.is_not(None)).limit(1))).first()
            for some_keys in _parts(keys) if is_any else ():
                some = parked.where(topic.in_({row.topic for row in rows}), key.in_(some_keys))
                found |= {(topic, key): first for topic, key, first in await connection.execute(some)}
        return found

    def _within(self, batches: Sequence[Batch]) -> Iterator[ColumnElement[bool]]:
        runs = runs_in(batches)
        return ids_within(self._tables.rows.c.id, runs, self._engine.dialect.name)

    async def _remove(self, connection: AsyncConnection, batches: Sequence[Batch]) -> None:
        """Delete the rows of batches, or move them to the table of sent rows."""
        if not self._keeps and not self._locks_ranges and (run := _only_run(batches)) is not None:
            await connection.execute(self._delete_run, run)
            return
        rows, sent = self._tables.rows, self._tables.sent
        names = ["id", *RECORD_COLUMNS, "created_at"]
        for within in self._within(batches):
            if self._keeps:
                moved = select(*(rows.c[name] for name in names), current_time()).where(within)
                await connection.execute(insert(sent).from_select([*names, "sent_at"], moved))
            await connection.execute(delete(rows).where(within))


def _parts(values: Sequence[ValueT]) -> Iterator[Sequence[ValueT]]:
    """Yield as many at a time as one list of parameters may have."""
    for start in range(0, len(values), IDS_AT_ONCE):
        yield values[start : start + IDS_AT_ONCE]


def _only_run(batches: Sequence[Batch]) -> dict[str, int] | None:
    """Return the bounds of the ids of batches, if these are one run; else None."""
    runs = sorted(runs_in(batches))
    if not runs or any(after[0] != before[1] + 1 for before, after in pairwise(runs)):
        return None
    return {"first": runs[0][0], "last": runs[-1][1]}


def _stored(rows: Sequence[SqlRow[tuple[object, ...]]]) -> Sequence[StoredRow]:
    """Return rows of the columns of a `StoredRow` as they are: they have its names, and a copy of each takes time."""
    return cast("Sequence[StoredRow]", rows)
