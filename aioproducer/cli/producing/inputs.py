"""Where lines come from: files and standard input, read in a thread of their own so that nothing blocks the loop."""

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
READ_AHEAD = 4
"""Chunks that are read and not yet taken."""


class InputReadError(OSError):
    """An input could not be opened or read; the message names it."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input."""

    name: str
    """As it is shown."""

    path: str | None
    """`None` is standard input."""

    size_bytes: int | None
    """`None` when nobody can know: a pipe, a terminal."""

    @contextmanager
    def opened(self) -> Iterator[FileIO]:
        """The input as a file that returns what there is, however little; standard input is left open."""
        with FileIO(0 if self.path is None else self.path, closefd=self.path is not None) as file:
            yield file


class Chunk(NamedTuple):
    """A piece of an input."""

    input_index: int

    data: bytes
    """Empty at its end."""


def find_inputs(arguments: Sequence[str]) -> tuple[list[Input], list[str]]:
    """The inputs that the arguments name, standard input without any, and a line for each that cannot be read.

    Nothing is opened: what a pipe holds can be read only once.
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
    """Yield the inputs in pieces, one input after another, each with an empty piece at its end.

    The thread that reads may be blocked for ever, in a pipe nobody writes to; it is a daemon, so that the process
    can end without it.

    Raises:
        InputReadError: an input cannot be opened or read.
    """
    reading = _Reading(inputs, asyncio.get_running_loop())
    threading.Thread(target=reading.run, name="aioproducer-inputs", daemon=True).start()
    try:
        async for chunk in reading.chunks():
            yield chunk
    finally:
        reading.stop()


class _Reading:
    """One thread that reads, and the queue by which the loop gets what it has read."""

    def __init__(self, inputs: Sequence[Input], loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = inputs
        self._loop = loop
        self._queue: asyncio.Queue[Chunk | InputReadError | None] = asyncio.Queue()
        self._room = threading.Semaphore(READ_AHEAD)
        self._is_stopped = False

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """Take what was read, until the last input ends."""
        while (item := await self._queue.get()) is not None:
            if isinstance(item, InputReadError):
                raise item
            yield item
            self._room.release()

    def stop(self) -> None:
        """Let the thread end when it next has something to give."""
        self._is_stopped = True
        self._room.release()

    def run(self) -> None:
        """Read everything; runs in the thread."""
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
        """Read one input to its end; False: nobody wants more."""
        with source.opened() as file:
            data = None
            while data != b"":
                data = file.read(CHUNK_BYTES) or b""
                self._room.acquire()
                if self._is_stopped or not self._put(Chunk(index, data)):
                    return False
        return True

    def _put(self, item: Chunk | InputReadError | None) -> bool:
        """Hand over; False: the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            return False
        return True


def _standard_input() -> Input:
    found = _input("standard input", None, os.fstat(0))
    os.read(0, 0)  # takes nothing; fails where it is closed, or open for writing only
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
    """The system's words, without number and file name."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
