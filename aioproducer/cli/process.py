"""Exit codes, and the standard streams.

They may be closed, without an encoding, full, without a reader, or set to O_NONBLOCK by the process they come from, as
asyncio and Node do with pipes. That flag belongs to the other side too, so it stays, and the command waits by itself.
"""

import codecs
import io
import os
import select
import sys
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from aioproducer._protocol.cluster_text import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

EXIT_FAILED: Final = 1  # the command failed: a record was not delivered, no broker answered
EXIT_USAGE: Final = 2  # nothing was done: an invalid argument, a port in use, a missing program or extra
EXIT_SIGNAL: Final = 128  # plus the number of the signal, as in shells
EXIT_INTERRUPTED: Final = EXIT_SIGNAL + 2  # after Ctrl-C
EXIT_LOST: Final = 3  # a batch is decided, and rows of it are missing
EXIT_UNFINISHED: Final = 4  # a batch is decided, and some of its transactions are not committed yet

STREAMS = ("stdin", "stdout", "stderr")  # by descriptor
NARROW_COLUMNS = 70  # a terminal with fewer shows progress as figures, without a bar


def open_closed_streams() -> None:
    """Open the null device for each closed descriptor from 0 to 2, as after `<&-` or `>&-`; to be called first.

    The system gives a new file the lowest free number, so a socket or pipe would get that of a standard stream: libuv
    aborts the process when it closes one of those, and printed text would go into the socket. Standard input is opened
    only for writing, so that reading it fails as for a closed one.
    """
    for descriptor, name in enumerate(STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(
                os.devnull, os.O_RDWR if descriptor else os.O_WRONLY
            )  # gets this number, the lowest free one
            os.set_inheritable(null, True)  # as standard streams are
            setattr(sys, name, open(null, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def let_any_text_out() -> None:
    """Let standard output accept any text, with escapes for characters that its encoding lacks.

    ASCII, the encoding of the locale "C", becomes UTF-8, as Python does by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")


def forget_width_of_zero() -> None:
    """Remove a COLUMNS of 0, which means "not known", as for `shutil.get_terminal_size`; rich would print nothing."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and not int(columns):
        del os.environ["COLUMNS"]


def wait_until_readable(descriptor: int) -> None:
    """Return when a read gives bytes, the end or an error; for a descriptor that had nothing now."""
    _wait_for(descriptor, select.POLLIN)


def wait_until_writable(descriptor: int) -> None:
    """Return when a write takes bytes or fails; for a descriptor that took nothing now."""
    _wait_for(descriptor, select.POLLOUT)


def _wait_for(descriptor: int, event: int) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()


def let_streams_wait() -> None:
    """Let each standard stream that is O_NONBLOCK wait, as others do: Python's own loses text and raises."""
    if os.name == "nt":  # which has no such flag
        return
    for descriptor, name in enumerate(STREAMS):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or os.get_blocking(descriptor):
            continue
        raw = _Waiting(descriptor, "w" if descriptor else "r", closefd=False)
        waiting = io.TextIOWrapper(
            io.BufferedWriter(raw) if descriptor else io.BufferedReader(raw),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, waiting)


class _Waiting(io.FileIO):
    """A descriptor that may be O_NONBLOCK, whose reads and writes wait nevertheless."""

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while (size := super().readinto(buffer)) is None:
            wait_until_readable(self.fileno())
        return size

    def write(self, content: "ReadableBuffer", /) -> int:
        while (size := super().write(content)) is None:
            wait_until_writable(self.fileno())
        return size


def discard(file: TextIO | BinaryIO) -> None:
    """Discard buffered and later output of a file that cannot be written, so that the exit does not report it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, file.fileno())
    os.close(null)


def tell(line: str, end: str = "\n") -> None:
    """Print a line to standard error; a full disk is ignored.

    Control characters are escaped, since brokers and other clients choose parts of error messages.
    """
    shown = "\n".join(printable(part, None) for part in line.split("\n"))
    try:
        print(shown, end=end, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)
