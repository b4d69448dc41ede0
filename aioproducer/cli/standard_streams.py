"""The three standard streams as a command finds them: closed, in no encoding, full, or read by nobody any more."""

import codecs
import io
import os
import sys
from typing import BinaryIO, TextIO

from aioproducer._protocol.cluster_text import printable

STREAMS = ("stdin", "stdout", "stderr")
"""By descriptor."""


def open_closed_streams() -> None:
    """Open the null device where descriptors 0 to 2 are closed, as after `<&-` or `>&-`; call it first of all.

    The system gives a new file the lowest free number. The first socket or pipe would get that of a standard stream:
    libuv refuses to close such a one and aborts the process, and what is printed would go to whatever got it.
    Standard input is opened for writing only, so that reading it fails, as from a closed one.
    """
    for descriptor, name in enumerate(STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR if descriptor else os.O_WRONLY)  # the lowest free number is this one
            os.set_inheritable(null, True)  # as standard streams are
            setattr(sys, name, open(null, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def let_any_text_out() -> None:
    """Let standard output take any text: as an escape where its encoding does not have it.

    ASCII is what the locale "C" has, which stands for "nobody has said", and becomes UTF-8; so Python itself does
    unless it is told not to.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")


def discard(file: TextIO | BinaryIO) -> None:
    """Let what is written to a file from now on, and what it still holds, go nowhere.

    For a file that cannot be written to any more: the interpreter would complain of it at its end.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, file.fileno())
    os.close(null)


def tell(line: str) -> None:
    """Say a line on standard error; one that takes no more, a full disk, is no reason to end for.

    Errors may hold text that brokers, or other clients of the cluster, chose: control characters are escaped.
    """
    shown = "\n".join(printable(part, None) for part in line.split("\n"))
    try:
        print(shown, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)
