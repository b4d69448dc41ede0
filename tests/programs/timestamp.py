"""Timestamps for what the programs print."""

import datetime as dt


def now() -> str:
    """Return the time in UTC, to the second."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
