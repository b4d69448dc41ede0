"""Reads lines from files and standard input, in a thread so that no read blocks the event loop."""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

STANDARD_INPUT = "-"
CHUNK_BYTES = 256 * 1024
READ_AHEAD = 4  # chunks that may be read before they are taken
NEWLINE = b"\n"


class InputReadError(OSError):
    """An input could not be opened or read; the message names it."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or standard input."""

    name: str
    path: str | None  # None for standard input
    size_bytes: int | None  # None if it is unknown, as for a pipe or terminal

    @contextmanager
    def opened(self) -> Iterator[FileIO]:
        """Open the input unbuffered: a read returns what is available. Standard input is left open."""
        with FileIO(0 if self.path is None else self.path, closefd=self.path is not None) as file:
            yield file


class Chunk(NamedTuple):
    """A piece of an input, empty at the end."""

    input_index: int

    data: bytes


def find_inputs(arguments: Sequence[str]) -> tuple[list[Input], list[str]]:
    """Return the inputs that the arguments name, by default standard input, and a line for each that cannot be read.

    No input is opened, since a pipe can be read only once.
    """
    inputs, problems = [], []
    for argument in arguments or [STANDARD_INPUT]:
        try:
            inputs.append(_standard_input() if argument == STANDARD_INPUT else _file(argument))
        except OSError as error:
            problems.append(f"{_shown(argument)}: {_reason(error)}")
    if list(arguments).count(STANDARD_INPUT) > 1:
        problems.append("- (standard input) is given twice")
    return inputs, problems


async def read_chunks(inputs: Sequence[Input]) -> AsyncGenerator[Chunk]:
    """Yield the inputs in chunks, one input after another, each with an empty chunk at its end.

    The reading thread is a daemon: it may be blocked forever in a pipe, and the process must still end.
    """
    reading = _Reading(inputs, asyncio.get_running_loop())
    threading.Thread(target=reading.run, name="aioproducer-inputs", daemon=True).start()
    try:
        async for chunk in reading.chunks():
            yield chunk
    finally:
        reading.stop()


class _Reading:
    """A reading thread, and the queue between it and the event loop."""

    def __init__(self, inputs: Sequence[Input], loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = inputs
        self._loop = loop
        self._queue: asyncio.Queue[Chunk | InputReadError | None] = asyncio.Queue()
        self._room = threading.Semaphore(READ_AHEAD)
        self._is_stopped = False

    async def chunks(self) -> AsyncGenerator[Chunk]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, InputReadError):
                raise item
            yield item
            self._room.release()

    def stop(self) -> None:
        self._is_stopped = True
        self._room.release()

    def run(self) -> None:
        for index, source in enumerate(self._inputs):
            try:
                go_on = self._read(index, source)
            except OSError as error:
                self._put(InputReadError(f"{source.name}: {_reason(error)}"))
                return
            if not go_on:
                return
        self._put(None)

    def _read(self, index: int, source: Input) -> bool:
        """Read one input to its end; returns False if the reading was stopped."""
        with source.opened() as file:
            data = None
            while data != b"":
                data = file.read(CHUNK_BYTES) or b""
                self._room.acquire()
                if self._is_stopped or not self._put(Chunk(index, data)):
                    return False
        return True

    def _put(self, item: Chunk | InputReadError | None) -> bool:
        """Put an item into the queue; returns False if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            return False
        return True


def _standard_input() -> Input:
    found = _input("standard input", None, os.fstat(0))
    os.read(0, 0)  # reads nothing, and fails if it is closed or open only for writing
    return found


def _file(path: str) -> Input:
    if not path:  # Path("") would be the current folder
        raise FileNotFoundError(None, "no such file or directory")
    found = _input(path, path, Path(path).stat())
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(None, "permission denied")
    return found


def _input(name: str, path: str | None, status: os.stat_result) -> Input:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(None, "is a directory")
    return Input(name, path, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _shown(argument: str) -> str:
    return "standard input" if argument == STANDARD_INPUT else argument or "''"


def _reason(error: OSError) -> str:
    """Return the system's message without error number and file name."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


class LineSplitter:
    """Cuts the chunks of one input into lines, in bounded memory.

    A line ends with LF or with the end of the input; the format handles a CR.

    Args:
        max_line_bytes: a longer line is reported as None.
    """

    __slots__ = ("_is_too_long", "_max_line_bytes", "_rest")

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in this chunk, without LF; None for a line that is too long."""
        *ends, rest = chunk.split(NEWLINE)
        for end in ends:
            yield self._line(end) if self._rest or self._is_too_long else self._checked(end)
        self._keep(rest)

    def finish(self) -> Iterator[bytes | None]:
        """Yield the last line, if the input does not end with LF."""
        if self._rest or self._is_too_long:
            yield self._line(b"")

    def _line(self, end: bytes) -> bytes | None:
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
