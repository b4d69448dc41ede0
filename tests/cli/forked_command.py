"""Runs the command in a fork of a process that has imported it: an interpreter of its own costs half a second each."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aioproducer.cli.main import app

PRELOADED = [
    *("aioproducer.cli.main", "aioproducer.cli.answering", "aioproducer.cli.connecting", "aioproducer.cli.running"),
    *("aioproducer._admin.cluster_requests", "aioproducer._producer.producer", "pydantic.types", "typer._adapters"),
]
"""What most commands import, some of it late."""


class Call(NamedTuple):
    """One run of the command."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    """In which it runs."""

    streams: Path
    """The folder with the files `in`, `out` and `err`, its standard streams."""


def run_command(call: Call) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    for number, name, mode in ((0, "in", os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY)):
        opened = os.open(call.streams / name, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["aioproducer", *call.arguments]
    app()
