"""Protocol of one connection, without I/O: frames, correlation ids, pipelining.

    request frame     size int32, api_key int16, version int16, correlation_id int32, client_id nullable string,
                      (flexible versions: tagged fields,) body
    response frame    size int32, correlation_id int32, (flexible versions: tagged fields,) body

A broker answers the requests of a connection in order. After any other response, including one without a request,
the connection must be closed.

Source: RequestHeader.json, ResponseHeader.json, InFlightRequests and NetworkReceive of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from aioproducer._protocol.messages import SMALL_RESPONSE
from aioproducer.errors import ProtocolError, TlsRefusedError

if TYPE_CHECKING:
    from aioproducer._protocol.produce import Buffer

ContextT = TypeVar("ContextT")

DEFAULT_MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Default of `socket.request.max.bytes`; responses to producers are far smaller."""

_API_VERSIONS: Final = 18
_SIZE_BYTES: Final = 4
_SMALLEST_FRAME: Final = 4  # a correlation id
_LAST_CORRELATION_ID: Final = 2**31 - 1
_REQUEST_START = struct.Struct(">ihhi")  # size, api key, version, correlation id
_REQUEST_START_BYTES: Final = 8  # of the start, what the size counts: all but itself
_INT32 = struct.Struct(">i")

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


class FrameProtocol(Generic[ContextT]):
    """Numbers requests, cuts the broker's bytes into responses, and matches the two.

    Args:
        client_id: sent with every request; brokers log it and apply quotas to it.
        max_frame_bytes: a larger response is refused as soon as its size is read.
        first_correlation_id: of the first request; the ids continue at 0 after 2^31 - 1.

    The context of a request is returned with its response, and not used otherwise.
    """

    __slots__ = (
        "_always_allowed",
        "_client_id",
        "_correlation_id",
        "_frame",
        "_has_spoken",
        "_max_frame_bytes",
        "_missing",
        "_start",
        "_tagged_client_id",
        "_unanswered",
    )

    def __init__(
        self, client_id: str, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, *, first_correlation_id: int = 0
    ) -> None:
        encoded = client_id.encode()
        self._client_id = struct.pack(">h", len(encoded)) + encoded
        self._tagged_client_id = self._client_id + b"\x00"  # with the tagged fields of the header: none
        self._max_frame_bytes = max_frame_bytes
        self._always_allowed = min(max_frame_bytes, SMALL_RESPONSE)
        self._correlation_id = first_correlation_id  # of the next request
        # (correlation id, header has tags, context, api key, most bytes of the response)
        self._unanswered: deque[tuple[int, bool, ContextT, int, int]] = deque()
        self._start = b""  # of a frame: fewer bytes than its size takes
        self._frame = bytearray()  # as much as there is of a frame whose size is known; not a list of its pieces,
        # each of which costs some hundred bytes: of a frame that comes byte by byte they would be its size many times
        self._missing = 0  # bytes of that frame still to come; 0 between frames
        self._has_spoken = False  # whether the broker's first frame was found to be one

    @property
    def in_flight(self) -> int:
        """Requests sent and not answered, those without a response (acks=0) not counted."""
        return len(self._unanswered)

    @property
    def oldest(self) -> ContextT | None:
        """The context of the oldest request in flight."""
        return self._unanswered[0][2] if self._unanswered else None

    def send(  # noqa: PLR0913  # what a header says, and what the response may be
        self,
        api_key: int,
        version: int,
        buffers: Sequence[Buffer],
        *,
        flexible: bool,
        context: ContextT,
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
        """
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        client_id = self._tagged_client_id if flexible else self._client_id
        size = _REQUEST_START_BYTES + len(client_id) + sum(map(len, buffers))
        if expects_response:
            # ApiVersions is answered with the plain header in every version: the broker may not know ours.
            largest = self._max_frame_bytes
            if largest_response is not None:
                largest = min(largest, largest_response)
            has_tags = flexible and api_key != _API_VERSIONS
            self._unanswered.append((correlation_id, has_tags, context, api_key, largest))
        start = _REQUEST_START.pack(size, api_key, version, correlation_id)
        return [b"".join((start, client_id, buffers[0])), *buffers[1:]]

    def receive(self, data: bytes | memoryview) -> Iterator[tuple[ContextT, memoryview]]:
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
        if self._start:
            data = self._start + bytes(data)
            self._start = b""
        view = memoryview(data)
        position = 0
        if self._missing:
            position = min(self._missing, len(view))
            self._frame += view[:position]
            self._missing -= position
            if self._missing:
                return
            frame, self._frame = memoryview(self._frame), bytearray()
            yield self._answer(frame)
        while len(view) - position >= _SIZE_BYTES:
            (size,) = _INT32.unpack_from(view, position)
            if not (self._has_spoken and _SMALLEST_FRAME <= size <= self._always_allowed):
                self._refuse_strangers(view[position : position + _SIZE_BYTES], size)
            position += _SIZE_BYTES
            if size > len(view) - position:
                self._frame += view[position:]
                self._missing = size - (len(view) - position)
                return
            position += size
            yield self._answer(view[position - size : position])
        self._start = bytes(view[position:])

    def take_in_flight(self) -> list[ContextT]:
        """Remove and return the contexts of all unanswered requests, oldest first; for a lost connection."""
        contexts = [context for _, _, context, _, _ in self._unanswered]
        self._unanswered.clear()
        return contexts

    @property
    def held_bytes(self) -> int:
        """How much is held of a response whose end has not come."""
        return len(self._frame)

    def drop_held(self) -> None:
        """Let go of a response whose end has not come: nothing will be received any more."""
        self._frame, self._start = bytearray(), b""

    def _refuse_strangers(self, start: memoryview, size: int) -> None:
        # What no Kafka broker sends as the first bytes of a frame, which say its size.
        if not self._has_spoken:
            _refuse_other_protocols(bytes(start))
            self._has_spoken = True
        largest, request = self._always_allowed, "no request"
        if self._unanswered:
            _, _, _, api_key, largest = self._unanswered[0]
            request = f"a request of API key {api_key}"
        if size > largest:
            raise ProtocolError(
                f"the broker announces an answer of {size} bytes to {request}, more than the {largest} allowed: "
                "is this a Kafka listener?"
            )
        if size < _SMALLEST_FRAME:
            raise ProtocolError(f"the broker announces an answer of {size} bytes: is this a Kafka listener?")

    def _answer(self, frame: memoryview) -> tuple[ContextT, memoryview]:
        (correlation_id,) = _INT32.unpack_from(frame)
        if not self._unanswered:
            raise ProtocolError(f"the broker answered (correlation id {correlation_id}) and was not asked")
        expected, has_tags, context, _, _ = self._unanswered[0]
        if correlation_id != expected:
            text = f"the broker answered request {correlation_id}, the oldest unanswered is {expected}"
            raise ResponseOutOfOrderError(text)
        body = frame[_tags_end(frame) if has_tags else _SMALLEST_FRAME :]
        self._unanswered.popleft()
        return context, body


def _refuse_other_protocols(start: bytes) -> None:
    if start[:2] in _TLS_RECORDS:
        raise TlsRefusedError(
            "the other end speaks TLS: this is the port of a TLS listener; set security_protocol to 'SSL', or, with "
            "SASL, to 'SASL_SSL'"
        )
    if start in _OTHER_PROTOCOLS:
        raise ProtocolError(f"the other end is {_OTHER_PROTOCOLS[start]}, not a Kafka broker (it said {start!r})")


def _tags_end(frame: memoryview) -> int:
    # No tagged field of a response header is known, and brokers send none: anything but "none" is rare enough
    # to be refused rather than skipped, unless it is well-formed.
    position = _SMALLEST_FRAME
    if len(frame) > position and frame[position] == 0:
        return position + 1
    try:
        count, position = _varint(frame, position)
        for _ in range(count):
            _, position = _varint(frame, position)
            size, position = _varint(frame, position)
            position += size
            if position > len(frame):
                raise ProtocolError(f"a tagged field of a response header ends at {position} of {len(frame)} bytes")
    except IndexError as error:
        raise ProtocolError("a response header ends in the middle of its tagged fields") from error
    return position


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # the last byte has its top bit clear
            return value, position
    raise ProtocolError("a varint of a response header is longer than five bytes")
