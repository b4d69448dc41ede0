"""Protocol of one connection, without I/O: frames, correlation ids, pipelining.

    request frame     size int32, api_key int16, version int16, correlation_id int32, client_id nullable string,
                      (flexible versions: tagged fields,) body
    response frame    size int32, correlation_id int32, (flexible versions: tagged fields,) body

A broker answers the requests of a connection in order. After any other response, including one without a request,
the connection must be closed.

Source: RequestHeader.json, ResponseHeader.json, InFlightRequests and NetworkReceive of Apache Kafka.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeVar

from aioproducer._native.frames import Frames
from aioproducer._protocol.messages import SMALL_RESPONSE
from aioproducer.errors import ProtocolError, TlsRefusedError

ContextT = TypeVar("ContextT")

DEFAULT_MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Default of `socket.request.max.bytes`; responses to producers are far smaller."""

_SMALLEST_FRAME: Final = 4  # a correlation id

_OTHER_PROTOCOLS: Final[dict[bytes, str]] = {
    b"HTTP": "an HTTP server",
    b"<htm": "an HTTP server",
    b"<HTM": "an HTTP server",
    b"<!DO": "an HTTP server",
    b"<!do": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
}
_TLS_RECORDS: Final = frozenset((b"\x15\x03", b"\x16\x03"))  # alert, handshake; then the version


class ResponseOutOfOrderError(ProtocolError):
    """The broker has answered another request than the oldest."""


class FrameProtocol(Frames[ContextT]):
    """Numbers requests, cuts the broker's bytes into responses, and matches the two.

    Args:
        client_id: sent with every request; brokers log it and apply quotas to it.
        max_frame_bytes: a larger response is refused as soon as its size is read.
        first_correlation_id: of the first request; the ids continue at 0 after 2^31 - 1.

    The context of a request is returned with its response, and not used otherwise.
    """

    __slots__ = ()

    def __init__(
        self, client_id: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, *, first_correlation_id: int = 0
    ) -> None:
        always_allowed = min(max_frame_bytes, SMALL_RESPONSE)
        super().__init__(client_id.encode(), max_frame_bytes, always_allowed, first_correlation_id)

    @property
    def oldest(self) -> ContextT | None:
        """The context of the oldest request in flight."""
        return self.unanswered[0][2] if self.unanswered else None

    def take_in_flight(self) -> list[ContextT]:
        """Remove and return the contexts of all unanswered requests, oldest first; for a lost connection."""
        contexts = [context for _, _, context, _, _ in self.unanswered]
        self.unanswered.clear()
        return contexts

    def check_size(self, start: memoryview, size: int) -> None:
        if not self.has_spoken:
            _refuse_other_protocols(bytes(start))
            self.has_spoken = True
        largest, request = self.always_allowed, "no request"
        if self.unanswered:
            _, _, _, api_key, largest = self.unanswered[0]
            request = f"a request of API key {api_key}"
        if size > largest:
            raise ProtocolError(
                f"the broker announces an answer of {size} bytes to {request}, more than the {largest} allowed: "
                "is this a Kafka listener?"
            )
        if size < _SMALLEST_FRAME:
            raise ProtocolError(f"the broker announces an answer of {size} bytes: is this a Kafka listener?")

    def refuse_answer(self, correlation_id: int) -> NoReturn:
        if not self.unanswered:
            raise ProtocolError(f"the broker answered (correlation id {correlation_id}) and was not asked")
        text = f"the broker answered request {correlation_id}, the oldest unanswered is {self.unanswered[0][0]}"
        raise ResponseOutOfOrderError(text)

    def end_of_tags(self, frame: memoryview, start: int) -> int:
        # Brokers send none, so they are passed over if they are well-formed.
        position = start
        try:
            count, position = _varint(frame, position)
            for _ in range(count):
                _, position = _varint(frame, position)
                size, position = _varint(frame, position)
                position += size
                if position > len(frame):
                    text = f"a tagged field of a response header ends at {position} of {len(frame)} bytes"
                    raise ProtocolError(text)
        except IndexError as error:
            raise ProtocolError("a response header ends in the middle of its tagged fields") from error
        return position


def _refuse_other_protocols(start: bytes) -> None:
    if start[:2] in _TLS_RECORDS:
        raise TlsRefusedError(
            "the other end speaks TLS: this is the port of a TLS listener; set security_protocol to 'SSL', or, with "
            "SASL, to 'SASL_SSL'"
        )
    if start in _OTHER_PROTOCOLS:
        raise ProtocolError(f"the other end is {_OTHER_PROTOCOLS[start]}, not a Kafka broker (it said {start!r})")


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # the last byte has its top bit clear
            return value, position
    raise ProtocolError("a varint of a response header is longer than five bytes")
