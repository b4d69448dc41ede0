"""Outbox: a row that a database transaction commits is in Kafka once, and in order. Needs the extra `outbox`.

`Outbox` is the table, and inserts records in the caller's transactions; `Outbox.relay` sends them.
"""

try:
    from aioproducer.outbox._errors import (
        ForeignPositionError,
        InDoubtError,
        NotInTransactionError,
        OutboxError,
        OutboxTableError,
        RefusedRowError,
    )
    from aioproducer.outbox._outbox import Outbox
    from aioproducer.outbox._relay import Relay, RelayStatistics
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
]
