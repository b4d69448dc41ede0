"""Timestamps for what the programs print."""

import datetime as dt


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
