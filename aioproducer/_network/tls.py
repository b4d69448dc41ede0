"""TLS over any transport: an asyncio protocol below, an asyncio transport above, OpenSSL on memory between them.

The TLS of the event loops is not used: its `get_write_buffer_size` counts ciphertext that has not reached the socket's
transport and nothing of what that one holds, so that nothing tells when a request has left; asyncio's makes and drops
buffers of megabytes, and neither runs over a proxy's or a simulation's transport on both loops.

Plaintext is encrypted while the transport below holds little, 112 KiB at a time: OpenSSL gives up the GIL in
each call, and with another busy thread gets it back after 5 ms, so few large calls are better than many small ones.
What waits for that stays in the memory of its owner. Positions are in plaintext, as `connection.py` needs them:
`get_write_buffer_size` is what waits here, plus all plaintext of TLS records that have not left the transport below as
a whole. The other end can read no byte of a record before it has the record, so no request that it answers looks
unsent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from aioproducer._network.sealed_bytes import SealedBytes
from aioproducer._network.tls_errors import Phase, TlsAttempt, closed_error, is_of_name, tls_error
from aioproducer._protocol.cluster_text import printable
from aioproducer.errors import KafkaError, TlsError

if TYPE_CHECKING:
    from aioproducer._protocol.produce import Buffer

READ_BYTES: Final = 16 * 1024  # the most plaintext of a record, and so of an `SSL_read`
SEAL_BYTES: Final = 7 * READ_BYTES
"""Plaintext that is encrypted in one call: as many full records as fit into one piece of ciphertext."""
SEAL_BYTES_UNDER_CONTENTION: Final = 1024 * 1024
"""The same while another thread wants the GIL."""
LATE_S: Final = 0.003  # an encryption that takes so long has waited for the GIL; Python's switch interval is 5 ms
PIECE_BYTES: Final = 120 * 1024
"""Ciphertext handed over at a time: malloc maps each larger block separately, at a page fault per 4 KiB."""
ALONE_BYTES: Final = 64 * 1024  # a piece of this size is encrypted without being copied into one with others
FEW_BYTES: Final = (
    4 * 1024
)  # a chunk this small, such as a request's header, takes the beginning of the next piece along
RAW_BYTES: Final = 64 * 1024
"""Plaintext waits while the transport below holds more than this."""
MOST_NAMES: Final = 10  # of a certificate, in a text
LOOK_S: Final = 2.0  # for the names of a certificate that was not accepted
MOST_SEALED_BYTES: Final = 2**37
"""Plaintext under the keys of one connection: AES-GCM wants new ones before some 2^38, as in Java."""


class InnerProtocol(Protocol):
    """Protocol above TLS: `BrokerConnection`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def retire_worn(self) -> None:
        """Let no further request be sent, and close when none is in flight."""


InnerT = TypeVar("InnerT", bound=InnerProtocol)
Connect: TypeAlias = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects with the protocol that a function makes."""


class TlsTransport(asyncio.Transport):  # noqa: PLR0904  # asyncio's interface
    """The transport above TLS; see the module."""

    def __init__(self, raw: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        super().__init__()
        self._raw = raw
        self._tls = tls
        self._outgoing = outgoing
        self._waiting: deque[Buffer] = deque()  # plaintext
        self._waiting_bytes = 0
        self._sealed = SealedBytes()
        self._seal_bytes = SEAL_BYTES
        self._high, self._low = 64 * 1024, 16 * 1024
        self._protocol: InnerProtocol | None = None
        self._is_raw_full = self._is_paused = self._is_closing = False
        self.is_ended = False
        self.failure: ssl.SSLError | None = None  # while encrypting
        self._left_before_worn = MOST_SEALED_BYTES

    # The interface of asyncio.Transport, as far as it makes sense here

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for piece in list_of_data:
            if piece:
                self._waiting.append(piece)
                self._waiting_bytes += len(piece)
        self._seal()
        if not self._is_paused and self.get_write_buffer_size() > self._high:
            self._is_paused = True
            self._inner.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._sealed.unsent(self._raw.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return False  # TLS 1.2 has no half of a connection

    def get_extra_info(self, name: str, default: object = None) -> object:
        match name:
            case "ssl_object":
                return self._tls
            case "peercert":
                return self._tls.getpeercert()
            case "cipher":
                return self._tls.cipher()
            case _:
                return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("InnerProtocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def close(self) -> None:
        """Encrypt and send what waits, say goodbye (close_notify), and close."""
        if not self._is_closing:
            self._is_closing = True
            self._seal()

    def abort(self) -> None:
        self.drop()
        self._raw.abort()

    # For the protocol below

    def drop(self) -> None:
        """Let go of the plaintext that waits: nothing is sent any more."""
        self._is_closing = self.is_ended = True
        self._waiting.clear()
        self._waiting_bytes = 0

    def raw_is_full(self) -> None:
        self._is_raw_full = True

    def raw_has_room(self) -> None:
        self._is_raw_full = False
        if self.is_ended:
            return
        self._seal()
        if self._is_paused and self.get_write_buffer_size() <= self._low:
            self._is_paused = False
            self._inner.resume_writing()

    def flush(self, plain_bytes: int = 0) -> None:
        """Hand what OpenSSL has produced to the transport below."""
        if not self._outgoing.pending:
            return
        sealed = [self._outgoing.read(PIECE_BYTES)]
        while self._outgoing.pending:
            sealed.append(self._outgoing.read(PIECE_BYTES))
        self._sealed.add(sealed, plain_bytes)
        for piece in sealed:
            self._raw.write(piece)

    @property
    def _inner(self) -> InnerProtocol:
        assert self._protocol is not None
        return self._protocol

    def _seal(self) -> None:
        """Encrypt what waits, while the transport below has room."""
        while self._waiting and not self._is_raw_full:
            chunk = self._next_chunk()
            began = perf_counter()
            try:
                self._tls.write(chunk)
            except ssl.SSLError as error:
                self._fail(error)
                return
            late = perf_counter() - began > LATE_S
            self._seal_bytes = SEAL_BYTES_UNDER_CONTENTION if late else SEAL_BYTES
            size = len(chunk)
            self._waiting_bytes -= size
            self._count(size)
            self.flush(size)
        if self._is_closing and not self._waiting and not self.is_ended:
            self._end()

    def _next_chunk(self) -> Buffer:
        first, most = self._waiting.popleft(), self._seal_bytes
        size = len(first)
        if size > most:
            view = memoryview(first)
            self._waiting.appendleft(view[most:])
            return view[:most]
        if not self._waiting or (size >= ALONE_BYTES and most == SEAL_BYTES):
            return first
        pieces = [first]
        while self._waiting and size + len(self._waiting[0]) <= most:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        if size <= FEW_BYTES and self._waiting:
            view = memoryview(self._waiting.popleft())
            pieces.append(view[: most - size])
            self._waiting.appendleft(view[most - size :])
        return b"".join(pieces)

    def _count(self, size: int) -> None:
        self._left_before_worn -= size
        if self._left_before_worn <= 0:
            self._left_before_worn = MOST_SEALED_BYTES
            self._inner.retire_worn()

    def _end(self) -> None:
        self.is_ended = True
        with contextlib.suppress(ssl.SSLError):  # the other end's goodbye is not waited for
            self._tls.unwrap()
        self.flush()
        self._raw.close()

    def _fail(self, error: ssl.SSLError) -> None:
        self.failure = error
        self.abort()


class TlsProtocol(asyncio.Protocol, Generic[InnerT]):
    """The protocol below TLS: does the handshake, then calls the protocol above; made by `TlsReloader.wrap`.

    Args:
        attempt: what the texts of errors need to know, and the name that is checked.
        make: creates the protocol above, when the handshake is done.
    """

    _raw: asyncio.Transport
    _incoming: ssl.MemoryBIO
    _tls: ssl.SSLObject
    _transport: TlsTransport

    def __init__(self, context: ssl.SSLContext, attempt: TlsAttempt, make: Callable[[], InnerT]) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[InnerT] = loop.create_future()
        """The protocol above, after the handshake; a `TlsError` if it fails."""
        self.closed: asyncio.Future[None] = loop.create_future()
        self.attempt = attempt
        self._context = context
        self._make = make
        self._inner: InnerT | None = None
        self._failure: KafkaError | None = None
        self._has_read = False

    async def established(self, *, again: Connect | None = None) -> InnerT:
        """Wait for the handshake; if this is cancelled, the connection is closed.

        Args:
            again: connects to the same address, in the same way, to see the names of a certificate that is for others.
        """
        try:
            return await asyncio.shield(self.done)
        except asyncio.CancelledError:
            self._raw.abort()
            await asyncio.wait((self.closed,))
            raise
        except TlsError as error:
            if not is_of_name(error.__cause__) or self.attempt.unnamed is None or again is None:
                raise
            names = await _names_at(again, replace(self.attempt, unnamed=None), self.attempt.unnamed)
            raise tls_error(
                cast("ssl.SSLError", error.__cause__), Phase.HANDSHAKE, replace(self.attempt, names=names)
            ) from error.__cause__

    # Called by the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=RAW_BYTES, low=RAW_BYTES)
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = self._context.wrap_bio(self._incoming, outgoing, server_hostname=self.attempt.host)
        except ValueError as error:  # a name that no certificate can have
            self._failure = TlsError(f"TLS cannot check the host name {self.attempt.host!r}: {error}")
            self._raw.abort()
            return
        self._transport = TlsTransport(self._raw, self._tls, outgoing)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self._failure is not None or self._transport.is_ended:
            return
        self._incoming.write(data)
        if self._inner is None:
            self._shake_hands()
        else:
            self._read(self._inner)

    def eof_received(self) -> bool:
        if self._failure is None and not self._transport.is_ended:
            if self._inner is None:
                self._incoming.write_eof()
                self._shake_hands()
            else:
                # Without close_notify, as when a broker is killed: frames have lengths, so nothing is cut unseen.
                self._inner.eof_received()
                self._transport.drop()
        return False

    def pause_writing(self) -> None:
        self._transport.raw_is_full()

    def resume_writing(self) -> None:
        self._transport.raw_has_room()

    def connection_lost(self, exc: Exception | None) -> None:
        phase = Phase.HANDSHAKE if self._inner is None else Phase.OPEN if self._has_read else Phase.FIRST_READ
        failure = self._failure
        if failure is None:
            written = self._transport.failure
            failure = None if written is None else tls_error(written, phase, self.attempt)
            self._transport.drop()
        if self._inner is not None:
            if failure is None and not self._has_read:
                failure = closed_error(phase, self.attempt)
            self._inner.connection_lost(failure or exc)
        elif not self.done.done():
            self.done.set_exception(failure or closed_error(phase, self.attempt))
            self.done.exception()  # marks it as retrieved: a cancelled attempt does not retrieve it
        self.closed.set_result(None)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._transport.flush()
            return
        except ssl.SSLError as error:
            self._fail(error, Phase.HANDSHAKE)
            return
        # The end of the handshake leaves together with the first request: a server that refuses our certificate closes,
        # and its alert would be lost if a second write met the closed socket.
        self._inner = self._make()
        self._transport.set_protocol(cast("asyncio.BaseProtocol", self._inner))
        self._inner.connection_made(self._transport)
        if not self.done.done():
            self.done.set_result(self._inner)
        if not self._transport.is_ended:
            self._read(self._inner)

    def _read(self, inner: InnerT) -> None:
        tls, transport = self._tls, self._transport
        while self._incoming.pending or tls.pending():
            try:
                data = tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                self._fail(error, Phase.OPEN if self._has_read else Phase.FIRST_READ)
                return
            if not data:  # close_notify
                inner.eof_received()
                transport.close()
                return
            self._has_read = True
            inner.data_received(data)
            if transport.is_ended:
                return
        transport.flush()

    def _fail(self, error: ssl.SSLError, phase: Phase) -> None:
        self._failure = tls_error(error, phase, self.attempt)
        self._transport.drop()
        if self._raw.get_write_buffer_size():
            self._raw.abort()
        else:  # the other end learns why
            self._transport.flush()
            self._raw.close()


class _Look(asyncio.Protocol):
    """Takes the names of the certificate, and closes."""

    names: tuple[str, ...] = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        found: dict[str, tuple[tuple[str, str], ...]] = transport.get_extra_info("peercert") or {}
        names = [printable(name) for kind, name in found.get("subjectAltName", ()) if kind in {"DNS", "IP Address"}]
        self.names = (*names[:MOST_NAMES], *["..."] * (len(names) > MOST_NAMES))
        cast("asyncio.Transport", transport).abort()

    def retire_worn(self) -> None:
        pass


async def _names_at(
    connect: Connect, attempt: TlsAttempt, make_context: Callable[[], ssl.SSLContext]
) -> tuple[str, ...]:
    """Return the names of a server's certificate, for the text of an error; none if anything goes wrong.

    OpenSSL does not show a certificate that it did not accept. So the server is asked once more, by a connection that
    checks all but the names, shows no client certificate, and sends nothing.
    """
    made: list[TlsProtocol[_Look]] = []

    def make() -> TlsProtocol[_Look]:
        made.append(TlsProtocol(make_context(), attempt, _Look))
        return made[-1]

    with contextlib.suppress(Exception):
        async with asyncio.timeout(LOOK_S):
            await connect(make)
            look = await made[0].established()
            await asyncio.wait((made[0].closed,))  # unlike an await of it, does not cancel it
            return look.names
    return ()
