"""Leases of shards: a row of the relay's table for each, so the number of rows is the number of shards.

They save work, and nothing depends on them: what a relay may do is decided by the epoch of the row.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from aioproducer.outbox._calls import ended, limit_of, uninterrupted
from aioproducer.outbox._check import check_dialect, check_tables
from aioproducer.outbox._errors import RelayFencedError, ShardsChangedError
from aioproducer.outbox._protocol import State, decode_claimed
from aioproducer.outbox._tables import Tables, current_ms, transacting, waiting_for_disk

if TYPE_CHECKING:
    from sqlalchemy.engine import Row as SqlRow
    from sqlalchemy.ext.asyncio import AsyncEngine


class Lease(NamedTuple):
    """The row of a shard, as a relay that stands by sees it."""

    owner: str | None
    epoch: int
    renewals: int
    left_ms: int
    """Until the lease ends by the clock of the database."""
    trouble: str | None
    """Why its owner sends nothing."""


class Holder(NamedTuple):
    """The relay that works on a shard, and the one that wants to."""

    shard: int
    owner: str | None
    wanted_by: str | None


class Leases:
    """The relay's table. Each call is one transaction on a connection of the pool, so standing by keeps none.

    Args:
        owner: this relay, for people and for other relays; it may be given later, before the first call.
        lease_s: how long others wait for a sign of this relay.
    """

    def __init__(self, engine: AsyncEngine, tables: Tables, *, owner: str = "", lease_s: float) -> None:
        self._engine = transacting(engine)
        self._tables = tables
        self._relay = tables.relay
        self.owner = owner
        self._lease_ms = round(lease_s * 1000)
        self.calls: set[asyncio.Future[Any]] = set()
        self.limit_s: float = limit_of(lease_s)

    async def close(self) -> None:
        """Wait until the calls have ended."""
        await ended(self)

    # The number of shards

    @uninterrupted
    async def number(self) -> int:
        """Return the number of shards, 0 before any relay; checks the tables.

        Raises:
            OutboxTableError: they cannot be used.
        """
        check_dialect(self._engine.dialect)
        async with self._engine.connect() as connection:
            await connection.run_sync(check_tables, self._tables.needed)
            return (await connection.execute(select(func.count()).select_from(self._relay))).scalar_one()

    @uninterrupted
    async def create(self, shards: int) -> None:
        """Divide a new outbox; another relay may be faster."""
        with suppress(IntegrityError):
            async with self._engine.begin() as connection:
                await connection.execute(insert(self._relay), [first_state(shard) for shard in range(shards)])

    @uninterrupted
    async def resize(self, finished: Sequence[State], shards: int) -> bool:
        """Change the number of shards; nothing is changed where a relay has done something since all were finished."""
        relay = self._relay
        fenced = update(relay).values(
            epoch=relay.c.epoch + 1,
            renewals=relay.c.renewals + 1,
            owner=None,
            wanted_by=None,
            lease_until=0,
            trouble=None,
        )
        async with self._engine.connect() as connection:
            await connection.execute(fenced)  # locks them all
            rows = (await connection.execute(select(relay).order_by(relay.c.id))).all()
            expected = [(state.shard, state.identity, state.epoch + 1, "[]") for state in finished]
            if [(row.id, row.identity, row.epoch, row.claimed) for row in rows] != expected:
                await connection.rollback()
                return False
            await connection.execute(delete(relay).where(relay.c.id >= shards))
            for shard in range(len(rows), shards):
                await connection.execute(insert(relay), first_state(shard))
            await connection.commit()
        return True

    # Who works

    @uninterrupted
    async def lease(self, shard: int, shards: int) -> Lease:
        """Return who works on a shard.

        Raises:
            ShardsChangedError: there is another number of shards.
        """
        relay = self._relay
        number = select(func.count()).select_from(relay).scalar_subquery()
        left_ms = relay.c.lease_until - current_ms()
        columns = relay.c.owner, relay.c.epoch, relay.c.renewals, left_ms, relay.c.trouble, number
        query = select(*columns).where(relay.c.id == shard)
        async with self._engine.connect() as connection:
            found = (await connection.execute(query)).one_or_none()
        if found is None or found[-1] != shards:
            raise ShardsChangedError(f"the outbox is not divided into {shards} shards any more")
        return Lease(*found[:-1])

    @uninterrupted
    async def take_over(self, shard: int, shards: int, seen: Lease) -> State | None:
        """Raise the epoch, so that no older relay claims (S1); None if another relay has done something since.

        A change of the number of shards is something, so the number is the one that was seen with the lease.
        """
        relay = self._relay
        raised = waiting_for_disk(  # another relay might be given the same epoch after a crash
            update(relay)
            .where(relay.c.id == shard, relay.c.epoch == seen.epoch, relay.c.renewals == seen.renewals)
            .values(
                epoch=relay.c.epoch + 1,
                renewals=relay.c.renewals + 1,
                owner=self.owner,
                wanted_by=None,
                lease_until=current_ms() + self._lease_ms,
            ),
            self._engine.dialect.name,
        )
        async with self._engine.begin() as connection:
            if (await connection.execute(raised)).rowcount != 1:
                return None
            return state_of((await connection.execute(select(relay).where(relay.c.id == shard))).one(), shards)

    @uninterrupted
    async def renew(self, state: State, trouble: str | None) -> None:
        """Keep a lease, and say why nothing is sent; as `release`.

        Raises:
            RelayFencedError: the epoch is not the last one.
        """
        kept = update(self._relay).where(is_of(self._tables, state)).values(lease_until=current_ms() + self._lease_ms)
        async with self._engine.begin() as connection:
            if (await connection.execute(kept.values(self._said(trouble)))).rowcount != 1:
                raise RelayFencedError("another relay has taken the outbox over")

    @uninterrupted
    async def release(self, state: State, trouble: str | None) -> None:
        """End a lease, so that another relay begins at once.

        Args:
            trouble: why this one has ended; empty for no reason, None leaves what was said before.
        """
        released = update(self._relay).where(is_of(self._tables, state)).values(owner=None, lease_until=0)
        async with self._engine.begin() as connection:
            await connection.execute(released.values(self._said(trouble)))

    def _said(self, trouble: str | None) -> dict[str, object]:
        renewals: dict[str, object] = {"renewals": self._relay.c.renewals + 1}
        return renewals if trouble is None else {**renewals, "trouble": trouble or None}

    # Sharing

    @uninterrupted
    async def holders(self) -> list[Holder]:
        """Return who works on each shard."""
        relay = self._relay
        query = select(relay.c.id, relay.c.owner, relay.c.wanted_by, is_leased(relay)).order_by(relay.c.id)
        async with self._engine.connect() as connection:
            return [
                Holder(shard, owner if is_held else None, wanted_by)
                for shard, owner, wanted_by, is_held in await connection.execute(query)
            ]

    @uninterrupted
    async def want(self, holder: Holder) -> None:
        """Ask the relay that works on a shard to leave it to this one."""
        relay = self._relay
        wanted = update(relay).where(relay.c.id == holder.shard, relay.c.owner == holder.owner)
        async with self._engine.begin() as connection:
            await connection.execute(wanted.values(wanted_by=self.owner))


def is_leased(relay: Table) -> ColumnElement[bool]:
    """Return the column `is_leased`: whether a relay works, by the clock of the database."""
    return (relay.c.lease_until > current_ms()).label("is_leased")


def is_of(tables: Tables, state: State) -> ColumnElement[bool]:
    """Return the condition that a relay is the last one of its shard; a row that was made again is of another one."""
    relay = tables.relay
    return and_(relay.c.id == state.shard, relay.c.identity == state.identity, relay.c.epoch == state.epoch)


def first_state(shard: int) -> dict[str, object]:
    """Return the row of a new shard."""
    return {
        "id": shard,
        "identity": secrets.token_hex(6),
        "epoch": 0,
        "number": 0,
        "claimed": "[]",
        "token": "",
        "former_token": "",
        "lease_until": 0,
        "renewals": 0,
    }


def state_of(row: SqlRow[tuple[object, ...]], shards: int) -> State:
    """Return the state that a row of the relay's table keeps."""
    return State(
        identity=row.identity,
        epoch=row.epoch,
        shard=row.id,
        shards=shards,
        number=row.number,
        claimed=decode_claimed(row.claimed),
        topic=row.topic,
        token=row.token,
        former_token=row.former_token,
    )
