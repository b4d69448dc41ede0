"""Waking of a relay in the process that commits a row."""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import suppress
from typing import Final

from sqlalchemy import event
from sqlalchemy.orm import Session

_MARK: Final = "aioproducer_outbox"
"""Key in `Session.info`: names of the outboxes that have new rows in its transaction."""


class Waker:
    """Wakes a relay; `wake` may be called by any thread.

    Args:
        outbox: name of the outbox.
    """

    def __init__(self, outbox: str) -> None:
        self.outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Let the relay look for rows now."""
        with suppress(RuntimeError):  # the loop is closed, and the relay with it
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Note that the relay looks for rows now: what it was woken for until now, it sees."""
        self._event.clear()

    async def wait(self, timeout_s: float) -> bool:
        """Return whether the relay was woken within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self.clear()
        return True


_WAKERS: Final[weakref.WeakSet[Waker]] = weakref.WeakSet()
_LOCK: Final = threading.Lock()
"""Of the set: sessions commit in any thread."""


def watch(waker: Waker) -> None:
    """Wake a relay after each commit of a session that has used its outbox."""
    if not event.contains(Session, "after_commit", _committed):
        event.listen(Session, "after_commit", _committed)
    with _LOCK:
        _WAKERS.add(waker)


def forget(waker: Waker) -> None:
    """Wake a relay no more."""
    with _LOCK:
        _WAKERS.discard(waker)


def mark(session: Session, outbox: str) -> None:
    """Note that the session's transaction has rows of an outbox."""
    if _WAKERS:
        session.info.setdefault(_MARK, set()).add(outbox)


def wake_all(outbox: str) -> None:
    """Wake the relays of an outbox in this process."""
    with _LOCK:
        woken = [each for each in _WAKERS if each.outbox == outbox]
    for waker in woken:
        waker.wake()


def _committed(session: Session) -> None:
    if session.in_nested_transaction():  # only a savepoint is released
        return
    for outbox in session.info.pop(_MARK, ()):
        wake_all(outbox)
