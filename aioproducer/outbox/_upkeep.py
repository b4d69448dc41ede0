"""Upkeep of the tables: counts of what waits, and the end of rows that were kept for long enough."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, func, select

from aioproducer.outbox._calls import ended, limit_of, uninterrupted
from aioproducer.outbox._tables import Tables, current_ms, ms_of, transacting

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

MOST_COUNTED: Final = 100_000
DELETED_AT_ONCE: Final = 1_000
TIME_CHANGE: Final = timedelta(hours=3)
"""More than any time zone changes by in summer."""


class Upkeep:
    """The tables of an outbox; each call uses a connection of the pool."""

    def __init__(self, engine: AsyncEngine, tables: Tables, *, lease_s: float) -> None:
        self._engine = transacting(engine)
        self._tables = tables
        self.calls: set[asyncio.Future[Any]] = set()
        self.limit_s: float = limit_of(lease_s)

    async def close(self) -> None:
        """Wait until the calls have ended."""
        await ended(self)

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

    async def delete_sent(self, older_than_s: float) -> None:
        """Delete rows that were sent longer ago, in small transactions, so that none holds others up."""
        while await self._delete_some(older_than_s) >= DELETED_AT_ONCE:
            pass

    @uninterrupted
    async def _delete_some(self, older_than_s: float) -> int:
        """Delete the oldest rows, and those that were sent at the same time; returns how many."""
        sent, sent_ms = self._tables.sent, ms_of(self._tables.sent.c.sent_at)
        is_old = sent_ms < current_ms() - round(older_than_s * 1000)
        oldest = select(sent.c.sent_at, sent_ms, is_old).order_by(sent.c.sent_at, sent.c.id).limit(DELETED_AT_ONCE)
        async with self._engine.begin() as connection:
            old = [(at, ms) for at, ms, is_old in await connection.execute(oldest) if is_old]
            if not old:
                return 0
            latest, latest_ms = old[-1]
            gone = delete(sent).where(sent.c.sent_at <= latest)
            if self._engine.dialect.name in {"mysql", "mariadb"}:  # whose times are in a zone, where one may be two
                gone = delete(sent).where(sent.c.sent_at <= latest + TIME_CHANGE, sent_ms <= latest_ms)
                gone = gone.with_dialect_options(mysql_limit=DELETED_AT_ONCE, mariadb_limit=DELETED_AT_ONCE)
            deleted = await connection.execute(gone)
        return deleted.rowcount
