"""The crash table."""

from typing import NamedTuple


class TableRow(NamedTuple):
    """What a case came to."""

    case: str
    broker: str
    duplicates: int
    missing: int
    recovery_s: float
    """From the start of the driver that recovers, or from the fault if none was started, to the commit of the batch."""


TABLE: list[TableRow] = []
