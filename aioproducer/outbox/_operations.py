"""Commands on an outbox beside its relay: look, let refused rows be sent, or drop them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, func, insert, inspect, select, update

from aioproducer.outbox._errors import DECISIONS, SKIP_BATCH, OutboxError, waits_for
from aioproducer.outbox._leases import is_leased, state_of
from aioproducer.outbox._protocol import State, decode_claimed, encode_claimed, runs_in, runs_of
from aioproducer.outbox._shards import add_hash, shard_of
from aioproducer.outbox._tables import RECORD_COLUMNS, current_ms, ids_within, ms_of, transacting

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.sql.elements import ColumnElement

    from aioproducer.outbox._outbox import Outbox


class ShardStatus(NamedTuple):
    """A shard at one moment."""

    shard: int
    rows_waiting: int
    relay: str | None
    """The one that works; None if none does."""
    batch: int
    """Number of the last one."""
    trouble: str | None
    """Why nothing is sent."""


class Status(NamedTuple):
    """An outbox at one moment."""

    outbox: str
    rows_waiting: int
    oldest_age_s: float | None
    rows_parked: int
    rows_kept: int | None
    """Rows that were sent and are kept; None without a table for them."""
    shards: tuple[ShardStatus, ...]
    """Empty before any relay."""

    @property
    def trouble(self) -> str:
        """Why rows are not sent, of all shards; empty if they are, or there are none."""
        said = [shard.trouble for shard in self.shards if shard.trouble]
        is_left = any(shard.rows_waiting and not shard.relay for shard in self.shards) if self.shards else True
        if not said and self.rows_waiting and is_left:
            said = ["rows wait, and no relay works"]
        return "; ".join(dict.fromkeys(said))


class ParkedRow(NamedTuple):
    """A row that was refused."""

    id: int
    topic: str
    key: str | None
    """As text; bytes that are not UTF-8 are written as in Python."""
    parked_at: str
    error: str


class Operations:
    """The operations on one outbox, each one transaction."""

    def __init__(self, outbox: Outbox, engine: AsyncEngine) -> None:
        self._tables = outbox._tables  # noqa: SLF001  # of the same package
        self._engine = transacting(engine)

    async def status(self) -> Status:
        """Count, and return who works."""
        rows, parked, relay, sent = self._tables
        age = select(current_ms() - ms_of(rows.c.created_at)).order_by(rows.c.id).limit(1)
        async with self._engine.connect() as connection:
            found = (await connection.execute(select(relay, is_leased(relay)).order_by(relay.c.id))).all()
            waiting = await self._waiting(connection, max(len(found), 1))
            age_ms = (await connection.execute(age)).scalar_one_or_none()
            aside = (await connection.execute(select(func.count()).select_from(parked))).scalar_one()
            has_sent = await connection.run_sync(lambda each: inspect(each).has_table(sent.name, sent.schema))
            count = select(func.count()).select_from(sent)
            kept = (await connection.execute(count)).scalar_one() if has_sent else None
        shards = tuple(
            ShardStatus(
                row.id, waiting.get(row.id, 0), row.owner if row.is_leased else None, row.number, row.trouble or None
            )
            for row in found
        )
        age_s = None if age_ms is None else max(age_ms, 0) / 1000
        return Status(self._tables.name, sum(waiting.values()), age_s, aside, kept, shards)

    async def _waiting(self, connection: AsyncConnection, shards: int) -> dict[int, int]:
        """Count the rows of each shard."""
        rows = self._tables.rows
        if shards == 1:
            return {0: (await connection.execute(select(func.count()).select_from(rows))).scalar_one()}
        await add_hash(connection)
        numbered = select(shard_of(rows, shards).label("shard")).subquery()
        counts = select(numbered.c.shard, func.count()).group_by(numbered.c.shard)
        return {int(shard): number for shard, number in await connection.execute(counts)}

    async def parked(self) -> list[ParkedRow]:
        """Return the parked rows, oldest first."""
        table = self._tables.parked
        query = select(table.c.id, table.c.topic, table.c.key, table.c.parked_at, table.c.error).order_by(table.c.id)
        async with self._engine.connect() as connection:
            return [
                ParkedRow(
                    row.id,
                    _text(row.topic),
                    None if row.key is None else _text(row.key),
                    str(row.parked_at),
                    row.error,
                )
                for row in await connection.execute(query)
            ]

    async def retry(self, ids: Sequence[int]) -> int:
        """Move parked rows back, with their ids unless other rows have these now; all without ids. Returns how many."""
        dialect = self._engine.dialect.name
        rows, parked, *_ = self._tables
        names = ["id", *RECORD_COLUMNS, "created_at"]
        chosen = select(parked.c.id).with_for_update()  # what is parked meanwhile stays
        if ids:
            chosen = chosen.where(parked.c.id.in_(ids))
        async with self._engine.begin() as connection:
            found = sorted((await connection.execute(chosen)).scalars())
            taken: set[int] = set()
            for within in ids_within(rows.c.id, runs_of(found), dialect):
                taken.update((await connection.execute(select(rows.c.id).where(within))).scalars())
            free = [each for each in found if each not in taken]
            for kept, some in ((names, free), (names[1:], sorted(taken))):
                for within in ids_within(parked.c.id, runs_of(some), dialect):
                    back = select(*(parked.c[name] for name in kept)).where(within).order_by(parked.c.id)
                    await connection.execute(insert(rows).from_select(kept, back))
                    await connection.execute(delete(parked).where(within))
        return len(found)

    async def skip(self, ids: Sequence[int]) -> int:
        """Delete rows, parked or waiting; returns how many.

        Raises:
            OutboxError: a relay has one of them in its hands, and may send it.
        """
        rows, parked, *_ = self._tables
        async with self._engine.begin() as connection:
            await self._take_back(connection, ids)
            gone = await connection.execute(delete(parked).where(parked.c.id.in_(ids)))
            waiting = await connection.execute(delete(rows).where(rows.c.id.in_(ids)))
            return gone.rowcount + waiting.rowcount

    async def _take_back(self, connection: AsyncConnection, ids: Sequence[int]) -> None:
        """Raise the epoch of each shard that has claimed one of these rows, so that its next relay reads them again.

        Raises:
            OutboxError: a relay works on such a shard.
        """
        relay = self._tables.relay
        await connection.execute(update(relay).values(renewals=relay.c.renewals))  # locks them all, also on SQLite
        for row in await connection.execute(select(relay, is_leased(relay))):
            runs = runs_in(decode_claimed(row.claimed))
            claimed = [each for each in ids if any(first <= each <= last for first, last in runs)]
            if claimed and row.is_leased and not waits_for(DECISIONS, row.trouble):
                raise OutboxError(
                    f"the relay {row.owner} has row {claimed[0]} in its hands, and may send it: end the relay first, "
                    "or try again while it waits between two attempts"
                )
            if claimed:
                raised = update(relay).where(relay.c.id == row.id)
                await connection.execute(raised.values(epoch=relay.c.epoch + 1, renewals=relay.c.renewals + 1))

    async def retry_batch(self, shard: int | None = None, *, new_identity: bool) -> int:
        """Have the claimed batches of a shard sent again, certainly; returns the number of their rows.

        With a new identity, those of every shard, if none is named.
        """
        async with self._engine.begin() as connection:
            states = await self._stopped(connection, shard, is_copy=new_identity)
            number = 0
            for state in states:
                for within in self._within(state):
                    count = select(func.count()).select_from(self._tables.rows).where(within)
                    number += (await connection.execute(count)).scalar_one()
                await self._write(connection, replace(state, topic=None), new_identity=new_identity)
        return number

    async def skip_batch(self, shard: int | None = None) -> int:
        """Delete the rows of the claimed batches of a shard, which Kafka has; returns their number."""
        async with self._engine.begin() as connection:
            (state,) = await self._stopped(connection, shard)
            number = 0
            for within in self._within(state):
                number += (await connection.execute(delete(self._tables.rows).where(within))).rowcount
            await self._write(connection, replace(state, topic=None, claimed=()), new_identity=False)
        return number

    def _within(self, state: State) -> Iterable[ColumnElement[bool]]:
        return ids_within(self._tables.rows.c.id, runs_in(state.claimed), self._engine.dialect.name)

    async def _stopped(self, connection: AsyncConnection, shard: int | None, *, is_copy: bool = False) -> list[State]:
        """Raise the epoch of a shard, so that what a relay has in its hands is void, and return its state.

        Args:
            is_copy: that a person says that the database is a copy, which no relay needs to have found; without a shard
                it is each.

        Raises:
            OutboxError: no relay was here yet, none has said that its batch is in doubt, or the shard must be named.
        """
        relay = self._tables.relay
        is_chosen = relay.c.id.is_not(None) if shard is None else relay.c.id == shard
        number = (await connection.execute(select(func.count()).select_from(relay))).scalar_one()
        if not number:
            raise OutboxError(f"no relay has worked on outbox {self._tables.name!r} yet")
        if shard is None and number > 1 and not is_copy:
            raise OutboxError(f"outbox {self._tables.name!r} has {number} shards: say which one, as in --shard 0")
        for row in await connection.execute(select(relay.c.trouble, is_leased(relay)).where(is_chosen)):
            if row.trouble and not is_copy and not waits_for([SKIP_BATCH], row.trouble):
                raise OutboxError(f"no batch is in doubt: the relay sends again once this is over: {row.trouble}")
            if row.is_leased and not row.trouble:
                raise OutboxError("a relay works, so no batch is in doubt")
            if not row.trouble and not is_copy:  # it may have ended before or after its batch was committed
                raise OutboxError(
                    "no relay has said that a batch is in doubt: start one, which asks Kafka, and sends what is not "
                    "there"
                )
        raised = update(relay).where(is_chosen).values(epoch=relay.c.epoch + 1, renewals=relay.c.renewals + 1)
        if not (await connection.execute(raised)).rowcount:
            raise OutboxError(f"outbox {self._tables.name!r} has the shards 0 to {number - 1}, not {shard}")
        found = await connection.execute(select(relay).where(is_chosen).order_by(relay.c.id))
        return [state_of(row, number) for row in found]

    async def _write(self, connection: AsyncConnection, state: State, *, new_identity: bool) -> None:
        relay = self._tables.relay
        identity = secrets.token_hex(6) if new_identity else state.identity
        changed = update(relay).where(relay.c.id == state.shard)
        claimed = encode_claimed(state.claimed)
        await connection.execute(
            changed.values(
                identity=identity, topic=state.topic, claimed=claimed, owner=None, lease_until=0, trouble=None
            )
        )


def _text(written: object) -> str:
    """Return what a column has; on SQLite, plain SQL may have written it as another type."""
    return written.decode(errors="backslashreplace") if isinstance(written, bytes) else str(written)
