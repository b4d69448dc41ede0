"""Outbox: a row that a database transaction commits is in Kafka once, and in order. Needs the extra `outbox`.

`Outbox` is the table, and inserts records in the caller's transactions; `Outbox.relay` sends them. `Spool` is the same
over a file, for services without a database.
"""

try:
    from aioproducer.outbox._errors import (
        ForeignPositionError,
        InDoubtError,
        NotInTransactionError,
        OutboxError,
        OutboxTableError,
        RefusedRowError,
        SpoolError,
        SpoolFullError,
    )
    from aioproducer.outbox._outbox import Outbox
    from aioproducer.outbox._relay import Relay, RelayStatistics
    from aioproducer.outbox._spool import Spool, SpoolStatistics
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "sqlalchemy":
        raise
    _text = "Outbox needs sqlalchemy: pip install 'aioproducer[outbox]'"
    raise ModuleNotFoundError(_text, name=_error.name) from _error

__all__ = [
    "ForeignPositionError",
    "InDoubtError",
    "NotInTransactionError",
    "Outbox",
    "OutboxError",
    "OutboxTableError",
    "RefusedRowError",
    "Relay",
    "RelayStatistics",
    "Spool",
    "SpoolError",
    "SpoolFullError",
    "SpoolStatistics",
]
