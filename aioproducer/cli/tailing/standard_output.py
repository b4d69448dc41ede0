"""Standard output that never blocks the event loop, and that knows when nobody reads it any more."""

import asyncio
import os
import select
import threading

STANDARD_OUTPUT = 1


class ReaderGoneError(Exception):
    """Nobody reads standard output any more, as after `| head`."""


async def write(content: bytes) -> None:
    """Write everything.

    A reader that is in no hurry, such as a pager, holds up a thread and not the loop, which has a consumer's
    heartbeats to send. The thread is a daemon and uses the bare descriptor, so that the process can end meanwhile.

    Raises:
        ReaderGoneError: the reader has gone.
        OSError: no space left, and the like.
    """
    loop = asyncio.get_running_loop()
    written: asyncio.Future[None] = loop.create_future()

    def tell(error: OSError | None) -> None:
        if written.done():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(_told(error))

    def run() -> None:
        error = _write_all(content)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name="aioproducer-output", daemon=True).start()
    await written


def is_reader_gone() -> bool:
    """Whether the pipe that standard output is has lost its reader."""
    poll = select.poll()
    poll.register(STANDARD_OUTPUT, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _told(error: OSError) -> Exception:
    """What is raised for it."""
    if isinstance(error, BrokenPipeError):
        return ReaderGoneError()
    return OSError(f"standard output: {error.strerror or error}")


def _write_all(content: bytes) -> OSError | None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(STANDARD_OUTPUT, rest) :]
    except OSError as error:
        return error
    return None
