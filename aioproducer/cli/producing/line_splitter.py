"""Cuts chunks of bytes into lines, in bounded memory whatever the input."""

from collections.abc import Iterator

NEWLINE = b"\n"


class LineSplitter:
    """The lines of one input, as its chunks come in.

    A line ends with LF, or with the end of the input; its CR, if it has one, is left to the format. Of a line that is
    longer than the limit only its end is looked for.

    Args:
        max_line_bytes: the longest line that is kept.
    """

    __slots__ = ("_is_too_long", "_max_line_bytes", "_rest")

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in this chunk, without their LF; `None` for one that is too long."""
        *ends, rest = chunk.split(NEWLINE)
        for end in ends:
            yield self._line(end) if self._rest or self._is_too_long else self._checked(end)
        self._keep(rest)

    def finish(self) -> Iterator[bytes | None]:
        """Yield the last line, if the input does not end with LF."""
        if self._rest or self._is_too_long:
            yield self._line(b"")

    def _line(self, end: bytes) -> bytes | None:
        """What was kept and its end, which then is forgotten."""
        self._keep(end)
        line = None if self._is_too_long else bytes(self._rest)
        self._rest.clear()
        self._is_too_long = False
        return line

    def _keep(self, piece: bytes) -> None:
        if self._is_too_long or len(self._rest) + len(piece) > self._max_line_bytes:
            self._is_too_long = self._is_too_long or bool(piece)
            self._rest.clear()
        else:
            self._rest += piece

    def _checked(self, line: bytes) -> bytes | None:
        return line if len(line) <= self._max_line_bytes else None
