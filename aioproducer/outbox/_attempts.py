"""Attempts that fail: told once, shown until one succeeds, and repeated less and less often."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer.errors import KafkaError
from aioproducer.outbox._drivers import DRIVERS, driver_of
from aioproducer.outbox._errors import ForeignPositionError, InDoubtError, OutboxError

if TYPE_CHECKING:
    from aioproducer._logs import EventLog

BACKOFF_MS: Final = (100, 10_000)


class Attempts:
    """The attempts of one task.

    Args:
        events: to tell errors.
    """

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._backoff = ExponentialBackoff(*BACKOFF_MS, random=Random())  # noqa: S311  # jitter
        self._failures = 0
        self._told = ""
        self.retries: int = 0
        self.trouble: str = ""
        """The error of the last attempt; empty if it has succeeded, or another relay works."""

    def succeeded(self) -> None:
        """Forget the last error."""
        self._failures, self.trouble, self._told = 0, "", ""

    def leave_to_another(self) -> None:
        """Forget the last error as long as another relay works; what it is told again by is known."""
        self.trouble = ""

    async def failed(self, error: Exception) -> None:
        """Note an error, and wait until the next attempt."""
        self.retries += 1
        text = words_of(error)
        if text != self._told and isinstance(error, OutboxError):
            self._events.error("outbox_stopped", error=text)
        elif text != self._told:
            is_known = isinstance(error, KafkaError) or is_of_database(error)
            self._events.warning("outbox_not_sent", error=text, exc_info=None if is_known else error)
        self.trouble = self._told = text
        is_for_people = isinstance(error, InDoubtError | ForeignPositionError)
        delay_s = BACKOFF_MS[1] / 1000 if is_for_people else self._backoff.delay_s(self._failures)
        self._failures += 1
        await asyncio.sleep(delay_s)


def is_of_database(error: Exception) -> bool:
    """Return whether an error is of a database, its driver or the way there."""
    # SQLAlchemy 2.0 passes errors of asyncpg on as they are when it connects.
    return isinstance(error, SQLAlchemyError | OSError) or driver_of(error) in DRIVERS


def words_of(error: Exception) -> str:
    """Return what went wrong, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = str(cause) or type(cause).__name__
    if isinstance(error, KafkaError):
        return text
    return f"database: {text}" if is_of_database(error) else f"{type(error).__name__}: {text}"
