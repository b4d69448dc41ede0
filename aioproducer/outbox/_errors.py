"""Errors of an outbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aioproducer.errors import KafkaError

SKIP_BATCH: Final = "aioproducer outbox skip --batch"
RETRY_BATCH: Final = "aioproducer outbox retry --batch"
NEW_IDENTITY: Final = "aioproducer outbox retry --new-identity"
NAME: Final = "kafka_outbox"
"""Of an outbox whose name was not chosen."""
DECISIONS: Final = (SKIP_BATCH, RETRY_BATCH, NEW_IDENTITY)
"""Commands by which a person says what became of a batch. A relay's stored reason has one of them only where it waits
for that, so `skip` and `retry` know it by them; a transaction that hangs (`InDoubtError` too) is ended otherwise."""


def waits_for(commands: Iterable[str], trouble: str | None) -> bool:
    """Return whether a relay, by its stored reason, waits for a person who gives one of these commands."""
    return any(command in (trouble or "") for command in commands)


def options_of(outbox: str) -> str:
    """Return the options by which a command finds the tables of an outbox, from its name with its schema."""
    schema, _, table = outbox.rpartition(".")
    return ("" if table == NAME else f" --table {table}") + (f" --schema {schema}" if schema else "")


def creation_of(outbox: str) -> str:
    """Return the command that creates the tables of an outbox."""
    return f"`aioproducer outbox create URL{options_of(outbox)}`"


class OutboxError(KafkaError):
    """Base class of the errors of an outbox; says what to do."""


class OutboxTableError(OutboxError):
    """A table of the outbox does not exist, has another shape, or its database cannot do what is needed."""


class NotInTransactionError(OutboxError):
    """It is closed or has failed, or commits each statement by itself, so that the row would be alone."""


class InDoubtError(OutboxError):
    """Kafka does not say whether a batch was committed, or will not be able to: a person must look, then act."""


class ForeignPositionError(OutboxError):
    """Kafka's position is not one of this database: it is a copy, or was restored from a backup."""


class RefusedRowError(OutboxError):
    """Kafka or this package refuses a row for good, and `on_refused` is "stop"."""


class RelayFencedError(OutboxError):
    """Another relay has taken the outbox over; internal to relays, which stand by then."""


class ShardsChangedError(OutboxError):
    """The number of shards is another one; internal to relays, which look again then."""


class SpoolError(OutboxError):
    """The file of a spool cannot be used; `outcome` says whether the record may have been stored."""


class SpoolFullError(SpoolError):
    """The spool holds as much as it may, and the record was not stored."""
