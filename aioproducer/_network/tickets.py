"""One Kerberos ticket for all connections of a producer.

A ticket of a keytab is renewed when four fifths of its life are over, and kept while a renewal fails. A ticket cache is
read for each authentication, so that a new `kinit` takes effect.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer._network.kerberos import Ticket
from aioproducer._protocol.sasl.gssapi import SecurityContext
from aioproducer._threads.off_loop import run_in_thread
from aioproducer.errors import TicketError

if TYPE_CHECKING:
    from aioproducer._logs import EventLog

_RENEWED_AFTER: Final = 0.8  # of a ticket's life; as Kafka's `sasl.kerberos.ticket.renew.window.factor`
_PAUSE_S: Final = 60.0  # between two requests for a ticket while there is a valid one


class _Source(Protocol):
    """The methods of `TicketSource`."""

    @property
    def user(self) -> str: ...

    def service(self, host: str) -> str: ...

    def open_context(self, host: str, ticket: object) -> SecurityContext: ...

    def acquire(self) -> Ticket: ...


class TicketCache:
    """Asks for tickets, at most once at a time.

    Args:
        source: of the tickets.
        loop: of the producer.
        log: for renewals that fail.
    """

    def __init__(self, source: _Source, loop: asyncio.AbstractEventLoop, *, log: EventLog) -> None:
        self.source = source
        self.asking: asyncio.Task[Ticket] | None = None
        self._loop = loop
        self._log = log
        self._kept: Ticket | None = None
        self._expires_at = self._renew_at = self._asked_at = -math.inf

    @property
    def user(self) -> str:
        """The principal, as far as it is known."""
        return self.source.user if self._kept is None else self._kept.user

    def current(self) -> Ticket | None:
        """Return the ticket if it is valid, and renew it in the background if that is due."""
        now = self._loop.time()
        if self._kept is None or now >= self._expires_at:
            return None
        if now >= self._renew_at and now >= self._asked_at + _PAUSE_S:
            self._ask()
        return self._kept

    async def ticket(self) -> Ticket:
        """Return a new ticket.

        Raises:
            TicketError: there is none.
        """
        return await asyncio.shield(self._ask())  # others wait for it too

    def failed(self) -> None:
        """Renew the ticket: with it came one for a broker whose key has changed, perhaps."""
        self._renew_at = -math.inf
        self.current()

    def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()

    def _ask(self) -> asyncio.Task[Ticket]:
        if self.asking is None:
            self._asked_at = self._loop.time()
            self.asking = self._loop.create_task(self._renewed(), name="aioproducer-sasl")
            self.asking.add_done_callback(self._note_end)
        return self.asking

    def _note_end(self, task: asyncio.Task[Ticket]) -> None:
        self.asking = None
        if not task.cancelled():
            task.exception()  # seen: a renewal in the background has no waiter

    async def _renewed(self) -> Ticket:
        began_at = self._loop.time()
        try:
            ticket = await run_in_thread(self.source.acquire, "aioproducer-sasl")
        except TicketError as error:
            if self._kept is None or self._loop.time() >= self._expires_at:
                raise
            self._log.warning("ticket_not_renewed", reason=str(error))
            return self._kept
        if ticket.is_own:
            self._kept = ticket
            self._expires_at = began_at + ticket.life_s
            self._renew_at = began_at + _RENEWED_AFTER * ticket.life_s
        return ticket
