"""Positions of TLS records: how much plaintext has left, by the ciphertext that the transport below still holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

RECORD_BYTES: Final = 16 * 1024  # plaintext of every record of one `SSL_write` but the last
_HEADER_BYTES: Final = 5  # type, version, length


class _Chunk(NamedTuple):
    """Result of one `SSL_write`."""

    start: int  # position of its first record of plaintext
    end: int
    plain_bytes: int
    record_bytes: int  # ciphertext of a full record; 0 if there is only one record


class SealedBytes:
    """Ciphertext handed to a transport, as far as that may still hold it; positions count from the first byte."""

    __slots__ = ("_chunks", "_handed", "_plain_bytes")

    def __init__(self) -> None:
        self._handed = 0
        self._chunks: deque[_Chunk] = deque()
        self._plain_bytes = 0  # of all chunks

    def add(self, sealed: Sequence[bytes], plain_bytes: int) -> None:
        """Note ciphertext that is handed over now; without `plain_bytes` it is not of the user of the connection."""
        start = self._handed
        self._handed += sum(map(len, sealed))
        layout = _layout(sealed, plain_bytes) if plain_bytes else None
        if layout is not None:
            self._chunks.append(_Chunk(start + layout[0], self._handed, plain_bytes, layout[1]))
            self._plain_bytes += plain_bytes

    def unsent(self, held: int) -> int:
        """Return the plaintext of all records that have not left as a whole, if the transport holds this ciphertext."""
        gone = self._handed - held
        chunks = self._chunks
        while chunks and chunks[0].end <= gone:
            self._plain_bytes -= chunks.popleft().plain_bytes
        if not chunks:
            return 0
        first = chunks[0]
        records = max(gone - first.start, 0) // first.record_bytes if first.record_bytes else 0
        return self._plain_bytes - records * RECORD_BYTES


def _layout(pieces: Sequence[bytes], plain_bytes: int) -> tuple[int, int] | None:
    """Return where the records of the plaintext begin, and the size of a full one; None if they cannot be found.

    OpenSSL may put a record of its own in front, such as the reply to a KeyUpdate. A record's overhead depends on the
    cipher, and with CBC on the size, but all full ones are alike.
    """
    full = (plain_bytes - 1) // RECORD_BYTES
    if not full:
        return 0, 0
    size = _record_size(pieces[0], 0)
    if sum(map(len, pieces)) - plain_bytes == (full + 1) * (size - RECORD_BYTES):
        return 0, size  # nearly always
    sealed, start = b"".join(pieces), 0
    while start < len(sealed):
        size = _record_size(sealed, start)
        last = start + full * size
        if last < len(sealed) and last + _record_size(sealed, last) == len(sealed):
            return start, size
        start += size
    return None


def _record_size(sealed: bytes, start: int) -> int:
    return _HEADER_BYTES + int.from_bytes(sealed[start + 3 : start + _HEADER_BYTES], "big")
