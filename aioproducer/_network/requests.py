"""Calls that wait for answers of brokers, and end with the producer whatever those do.

A request on its way, with what is to be done about its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer._protocol.produce import Buffer
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class PendingCalls:
    """Those of one producer.

    Args:
        refuse: raises what a call gets when the producer closes or has failed.
    """

    __slots__ = ("_is_ended", "_open", "_refuse")

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse
        self._open: set[asyncio.Timeout] = set()
        self._is_ended = False

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Give what is inside so much time, and no more than the producer has.

        Raises:
            TimeoutError: it took longer.
            KafkaError: the producer has come to its end meanwhile.
        """
        timeout = asyncio.timeout(timeout_s)
        try:
            async with timeout:
                self._open.add(timeout)
                yield
        except TimeoutError:
            if self._is_ended:
                self._refuse()
            raise
        finally:
            self._open.discard(timeout)

    def end(self) -> None:
        """Let all of them end: the producer closes, or has failed."""
        self._is_ended = True
        for timeout in self._open:
            if not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        """Show how many there are."""
        return f"<OpenCalls {len(self._open)}>"


@dataclass(slots=True, kw_only=True, eq=False)
class OutgoingRequest:
    """Made by whoever sends; the connection calls exactly one of the three callbacks, once."""

    api_key: int
    version: int
    flexible: bool
    """Whether this version has tagged fields in its headers."""
    buffers: Sequence[Buffer]
    """The body in pieces. Must not change until the request has ended."""
    on_response: Callable[[memoryview, float], None]
    """Called with the answer behind its header, and the time."""
    on_lost: Callable[[KafkaError], None]
    """Called when the connection was lost before the end. The error is shared by all that were lost with it."""
    largest_response: int | None = None
    """Bytes that the answer may have; None: as any frame."""
    expects_response: bool = True
    """False for Produce with acks=0."""
    on_written: Callable[[], None] | None = None
    """Without a response: called when the request's bytes have left the transport's buffer."""
    sent_at: float = 0.0
    """Set by the connection: monotonic seconds of the hand-over to the transport."""
    end: int = 0
    """Set by the connection: position of the request's end in the stream of bytes."""
