"""Arguments of a relay and a spool, refused at the call rather than by each attempt in the background."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool, StaticPool

from aioproducer.config._rules import ACKS_ALL
from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

MAX_INT: Final = 2**31 - 1
DAY_S: Final = 86_400
MAX_AGE_S: Final = 36_500 * DAY_S
"""A time in milliseconds is a 64-bit number in every database."""
MAX_PREFIX_BYTES: Final = 32_000
"""Kafka allows 32,767 bytes for an id; the identity of the outbox and the shard follow."""


def check_engine(engine: AsyncEngine, shards: int = 1) -> None:
    """Refuse an engine that a relay of so many shards cannot use.

    Raises:
        TypeError: not asynchronous.
        ConfigurationError: its connections are one: the relay's commit would commit what the application has open; or
            its pool lends too few at a time.
    """
    if not isinstance(engine, AsyncEngine):
        raise TypeError(f"engine must be an AsyncEngine, as of create_async_engine(...), not {type(engine).__name__}")
    refuse_translated(engine.get_execution_options())
    if isinstance(engine.pool, StaticPool):
        raise ConfigurationError(
            "engine must give each transaction a connection of its own; its StaticPool shares one, as of "
            "SQLite in memory, and the relay's commit would commit yours: use a file, as of "
            "'sqlite+aiosqlite:///outbox.db'"
        )
    size = engine.pool.size() if isinstance(engine.pool, QueuePool) else 0  # of which 0 has no bound
    overflow = getattr(engine.pool, "_max_overflow", -1)  # SQLAlchemy has no public name for it; nor has -1 one
    if size and 0 <= overflow <= shards - size:
        each = "to send rows" if shards == 1 else f"for each of {shards} shards to send its rows"
        raise ConfigurationError(
            f"engine must lend a relay {shards + 1} connections at a time, one {each} and one to renew leases; its "
            f"pool has {size + overflow} (pool_size={size}, max_overflow={overflow})"
        )


def refuse_translated(options: Mapping[str, object]) -> None:
    """Refuse execution options that move tables to another schema: triggers and checks would not follow.

    Raises:
        ConfigurationError: names what works.
    """
    if options.get("schema_translate_map"):
        raise ConfigurationError(
            "engine must have no schema_translate_map, which an outbox does not follow: Outbox(schema=...) names the "
            "schema of its tables"
        )


def refuse_moved(options: Mapping[str, object], table: Table) -> None:
    """Refuse execution options that move the table of the rows: no relay would read it there.

    Raises:
        ConfigurationError: names the schemas, and what works.
    """
    translated = options.get("schema_translate_map") or {}
    assert isinstance(translated, Mapping)
    moved = translated.get(table.schema, table.schema)
    if moved != table.schema:
        raise ConfigurationError(
            f"the schema_translate_map of the session or connection moves table {table.fullname!r} to schema "
            f"{moved!r}, where no relay of this outbox reads: name a schema that the map leaves alone, as in "
            "Outbox(schema='public')"
        )


def check_choice(name: str, chosen: object, allowed: tuple[str, ...]) -> None:
    """Refuse what is not one of a few texts."""
    if not isinstance(chosen, str) or chosen not in allowed:
        raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {chosen!r}")


def check_switch(name: str, chosen: object) -> None:
    """Refuse what is not a bool."""
    if not isinstance(chosen, bool):
        raise ConfigurationError(f"{name} must be True or False, not {chosen!r}")


def check_int(name: str, number: object, most: int = MAX_INT) -> None:
    """Refuse what is not an int from 1."""
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
        raise ConfigurationError(f"{name} must be an int from 1 to {most:,}, not {number!r}")


def check_seconds(name: str, number: object, *, least: float = 0.0, most: float) -> None:
    """Refuse what is not a time of more than `least`, or than nothing."""
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= most and number >= least:
        return
    floor = f"of at least {least}" if least else "above 0"
    raise ConfigurationError(f"{name} must be a number of seconds {floor}, and at most {most:,}, not {number!r}")


def checked_keep(keep: timedelta | float | None) -> float | None:
    """Return for how many seconds rows are kept."""
    if keep is None:
        return None
    seconds = keep.total_seconds() if isinstance(keep, timedelta) else keep
    check_seconds("keep", seconds, most=MAX_AGE_S)
    return seconds


def check_id_prefix(prefix: object) -> None:
    """Refuse what cannot begin a transactional id and a group's.

    `{pid}` would be replaced in the transactional id, and relays of several processes would not end each other's.
    """
    if not isinstance(prefix, str):
        raise ConfigurationError(f"id_prefix must be a str, not {type(prefix).__name__}")
    if not prefix.isprintable() or len(prefix.encode(errors="replace")) > MAX_PREFIX_BYTES or set(prefix) & set("{}"):
        shown = prefix if len(prefix) < 50 else f"{prefix[:20]}..."  # noqa: PLR2004  # no promise
        raise ConfigurationError(
            f"id_prefix must be printable text of up to {MAX_PREFIX_BYTES:,} bytes without braces, not {shown!r}"
        )


def check_exact(config: ProducerConfig) -> None:
    """Refuse options with which a producer has no transactions; names the one that was given."""
    if config.enable_idempotence:
        return
    given = {"acks": config.acks != ACKS_ALL, "retries": config.retries == 0, "enable_idempotence": True}
    option = next(name for name, is_cause in given.items() if is_cause)
    raise ConfigurationError(
        f'{option}={getattr(config, option)} is not for a relay with transactions, which needs acks="all", retries '
        f"above 0 and enable_idempotence=True: leave {option} out, or set transactional=False",
        option=option,
    )
