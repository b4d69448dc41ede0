"""Requests to brokers and how each one ends; calls that end with the producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer._protocol.produce import Buffer
    from aioproducer.errors import KafkaError


class PendingCalls:
    """Calls of one producer that wait for answers of brokers; `refuse` raises the error of one that has ended."""

    __slots__ = ("_is_ended", "_open", "_refuse")

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse
        self._open: set[asyncio.Timeout] = set()
        self._is_ended = False

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Bound the body by a timeout and by the end of the producer."""
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
        """End all calls: the producer closes or has failed."""
        self._is_ended = True
        for timeout in self._open:
            if not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request whose caller waits: what is known of its way."""

    api: str
    node_id: int | None  # to be asked; None: any
    began_at: float  # monotonic seconds
    asked: dict[int, float] = field(default_factory=dict)
    """When which node was sent it; negative: at a bootstrap address."""


class Answered(NamedTuple):
    """The broker has answered, and the transport holds none of the request's bytes any more."""

    payload: memoryview  # the response behind its header
    now: float  # monotonic seconds


class Written(NamedTuple):
    """The bytes of a request without a response have left the transport."""


class Lost(NamedTuple):
    """The connection was lost before the response came, or before the bytes had left (acks=0)."""

    error: KafkaError  # shared by all requests that were lost with the connection
    is_unprocessed: bool = False  # the broker has certainly processed none of it


RequestEnd: TypeAlias = Answered | Written | Lost

WRITTEN: Final = Written()


@dataclass(slots=True, kw_only=True, eq=False)
class OutgoingRequest:
    """One request; the connection calls `on_end` exactly once, unless the request is withdrawn before it is sent."""

    api_key: int
    name: str  # of the API, for errors
    version: int
    flexible: bool  # whether this version has tagged fields in its headers
    buffers: Sequence[Buffer]  # the body in pieces; must not change until the request has ended
    on_end: Callable[[RequestEnd], None]
    largest_response: int | None = None  # largest size of the response in bytes; None allows as much as for any frame
    expects_response: bool = True  # False for Produce with acks=0
    sent_at: float = 0.0  # monotonic seconds of the hand-over to the transport, set by the connection
    end: int = 0  # position of the request's end in the stream of bytes, set by the connection
    size: int = 0  # bytes behind the field with the frame's size, set by the connection
