"""Commands on an outbox beside its relay: look, let refused rows be sent, or drop them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import delete, func, insert, select, update

from aioproducer.outbox._errors import OutboxError
from aioproducer.outbox._protocol import State, encode_claimed
from aioproducer.outbox._store import ID, delete_batches, state_of
from aioproducer.outbox._tables import RECORD_COLUMNS, current_ms, ms_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from aioproducer.outbox._outbox import Outbox

SHOWN_KEY_BYTES = 40


class Status(NamedTuple):
    """An outbox at one moment."""

    outbox: str
    rows_waiting: int
    oldest_age_s: float | None
    rows_parked: int
    relay: str | None
    """The one that works; None if none does."""
    batch: int
    """Number of the last one."""
    trouble: str | None
    """Why nothing is sent."""


class ParkedRow(NamedTuple):
    """A row that was refused."""

    id: int
    topic: str
    key: str
    parked_at: str
    error: str


class Operations:
    """The operations on one outbox, each one transaction."""

    def __init__(self, outbox: Outbox, engine: AsyncEngine) -> None:
        self._tables = outbox._tables  # noqa: SLF001  # of the same package
        self._engine = engine

    async def status(self) -> Status:
        """Count, and return who works."""
        rows, parked, relay = self._tables
        age = select(current_ms() - ms_of(rows.c.created_at)).order_by(rows.c.id).limit(1)
        is_leased = (relay.c.lease_until > current_ms()).label("is_leased")
        async with self._engine.connect() as connection:
            waiting = (await connection.execute(select(func.count()).select_from(rows))).scalar_one()
            age_ms = (await connection.execute(age)).scalar_one_or_none()
            aside = (await connection.execute(select(func.count()).select_from(parked))).scalar_one()
            found = (await connection.execute(select(relay, is_leased).where(relay.c.id == ID))).one_or_none()
        return Status(
            self._tables.name,
            waiting,
            None if age_ms is None else max(age_ms, 0) / 1000,
            aside,
            None if found is None or not found.is_leased else found.owner,
            0 if found is None else found.number,
            None if found is None else found.trouble,
        )

    async def parked(self) -> list[ParkedRow]:
        """Return the parked rows, oldest first."""
        table = self._tables.parked
        query = select(table.c.id, table.c.topic, table.c.key, table.c.parked_at, table.c.error).order_by(table.c.id)
        async with self._engine.connect() as connection:
            return [
                ParkedRow(row.id, row.topic, _text(row.key), str(row.parked_at), row.error)
                for row in await connection.execute(query)
            ]

    async def retry(self, ids: Sequence[int]) -> int:
        """Move parked rows back, with their ids; all without ids. Returns how many."""
        rows, parked, _ = self._tables
        names = ["id", *RECORD_COLUMNS, "created_at"]
        chosen = parked.c.id.in_(ids) if ids else parked.c.id.is_not(None)
        async with self._engine.begin() as connection:
            back = select(*(parked.c[name] for name in names)).where(chosen)
            await connection.execute(insert(rows).from_select(names, back))
            return (await connection.execute(delete(parked).where(chosen))).rowcount

    async def skip(self, ids: Sequence[int]) -> int:
        """Delete rows, parked or waiting; returns how many."""
        rows, parked, _ = self._tables
        async with self._engine.begin() as connection:
            gone = await connection.execute(delete(parked).where(parked.c.id.in_(ids)))
            waiting = await connection.execute(delete(rows).where(rows.c.id.in_(ids)))
            return gone.rowcount + waiting.rowcount

    async def retry_batch(self, *, new_identity: bool) -> int:
        """Have the claimed batches sent again, certainly; returns the number of their rows."""
        async with self._engine.begin() as connection:
            state = await self._stopped(connection)
            rows = sum(last - first + 1 for batch in state.claimed for first, last in batch.runs)
            await self._write(connection, replace(state, topic=None), new_identity=new_identity)
        return rows

    async def skip_batch(self) -> int:
        """Delete the rows of the claimed batches, which Kafka has; returns their number."""
        async with self._engine.begin() as connection:
            state = await self._stopped(connection)
            rows = sum(last - first + 1 for batch in state.claimed for first, last in batch.runs)
            await delete_batches(connection, self._tables.rows, state.claimed)
            await self._write(connection, replace(state, topic=None, claimed=()), new_identity=False)
        return rows

    async def _stopped(self, connection: AsyncConnection) -> State:
        """Raise the epoch, so that what a relay has in its hands is void, and return the state.

        Raises:
            OutboxError: no relay was here yet, or one works: then nothing is in doubt.
        """
        relay = self._tables.relay
        is_working = select(relay.c.id).where(relay.c.lease_until > current_ms(), relay.c.trouble.is_(None))
        if (await connection.execute(is_working)).first() is not None:
            raise OutboxError("a relay works, so no batch is in doubt: end it first, if you want this all the same")
        raised = update(relay).where(relay.c.id == ID).values(epoch=relay.c.epoch + 1, renewals=relay.c.renewals + 1)
        if (await connection.execute(raised)).rowcount != 1:
            raise OutboxError(f"no relay has worked on outbox {self._tables.name!r} yet")
        return state_of((await connection.execute(select(relay).where(relay.c.id == ID))).one())

    async def _write(self, connection: AsyncConnection, state: State, *, new_identity: bool) -> None:
        relay = self._tables.relay
        identity = secrets.token_hex(6) if new_identity else state.identity
        changed = update(relay).where(relay.c.id == ID)
        claimed = encode_claimed(state.claimed)
        await connection.execute(
            changed.values(
                identity=identity, topic=state.topic, claimed=claimed, owner=None, lease_until=0, trouble=None
            )
        )


def _text(key: bytes | None) -> str:
    return "-" if key is None else key[:SHOWN_KEY_BYTES].decode(errors="backslashreplace")
