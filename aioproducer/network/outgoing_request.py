"""A request on its way, with what is to be done about its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aioproducer.errors import KafkaError
from aioproducer.protocol.produce import Buffer


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
