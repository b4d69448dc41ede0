"""Frames of one connection: requests are numbered, and the broker's bytes are cut into responses."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, NoReturn, TypeVar

from aioproducer._protocol.produce import Buffer

_ContextT = TypeVar("_ContextT")

class Frames(Generic[_ContextT]):
    """The part of a `FrameProtocol` that every request and every response passes."""

    has_spoken: bool  # whether the broker's first frame was found to be one, by `check_size`

    def __init__(
        self, client_id: bytes, max_frame_bytes: int, always_allowed: int, first_correlation_id: int
    ) -> None: ...
    @property
    def always_allowed(self) -> int:
        """Bytes that a response may have, whichever request it answers."""
    @property
    def unanswered(self) -> deque[tuple[int, bool, _ContextT, int, int]]:
        """(correlation id, header has tags, context, api key, most bytes of the response), oldest first."""
    @property
    def in_flight(self) -> int:
        """Requests sent and not answered, those without a response (acks=0) not counted."""
    @property
    def held_bytes(self) -> int:
        """How much is held of a response whose end has not come."""
    def drop_held(self) -> None:
        """Let go of a response whose end has not come: nothing will be received any more."""
    def send(  # what a header says, and what the response may be
        self,
        api_key: int,
        version: int,
        buffers: Sequence[Buffer],
        *,
        flexible: bool,
        context: _ContextT,
        expects_response: bool = True,
        largest_response: int | None = None,
    ) -> list[Buffer]:
        """Number a request and put frame size and header before it.

        Args:
            buffers: the request's body in pieces; only the first is copied, into the piece with the header.
            flexible: whether this version has tagged fields in its headers.
            expects_response: False for Produce with acks=0, which a broker does not answer.
            largest_response: bytes that the response may have; None: as any frame.

        Returns:
            The whole frame in pieces, to be written in this order.

        Raises:
            OverflowError: the frame would have more than 2^31 - 1 bytes.
        """
    def receive(self, data: bytes | memoryview) -> Iterator[tuple[_ContextT, memoryview]]:
        """Take bytes from the broker and yield the responses they complete, oldest first.

        An iterator so that the responses before a bad one count; the rest of `data` is handled when it is
        exhausted. The views stay valid as long as they are held: what they look into is never reused.

        Yields:
            The request's context, and the response behind its header.

        Raises:
            ProtocolError: a size that is negative, too small or too large; a response out of order or not asked
                for; another protocol. The conversation cannot go on.
            TlsRefusedError: the other end speaks TLS.
        """
    @abstractmethod
    def check_size(self, start: memoryview, size: int) -> None:
        """Raise unless a frame may begin with `start`, which says that it has `size` bytes."""
    @abstractmethod
    def refuse_answer(self, correlation_id: int) -> NoReturn:
        """Raise the error of a response that is not the one to the oldest request."""
    @abstractmethod
    def end_of_tags(self, frame: memoryview, start: int) -> int:
        """Return where the tagged fields end that begin at `start`; raise if they are not well-formed."""
