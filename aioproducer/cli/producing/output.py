"""Where the report of `aioproducer produce` goes."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self, TextIO

from aioproducer.cli.producing.inputs import Input
from aioproducer.cli.producing.report import Ending, report, summary
from aioproducer.cli.producing.tally import Tally

STANDARD_OUTPUT = "-"


class Output:
    """The summary on standard error, the JSON report where it is wanted.

    A context manager: the report's file is opened, and emptied, before anything is sent.

    Args:
        report_to: a file, `-` for standard output, `None` for no report.
    """

    def __init__(self, report_to: str | None) -> None:
        self._report_to = report_to
        self._file: TextIO | None = None

    def problem(self, inputs: Sequence[Input]) -> str | None:
        """Why the report cannot be written there; `None`: nothing is known against it."""
        if self._report_to in {None, STANDARD_OUTPUT}:
            return None
        path = Path(str(self._report_to))
        for source in inputs:
            if source.path is not None and path.exists() and path.samefile(source.path):
                return f"--report {path}: that is an input"
        return None

    def __enter__(self) -> Self:
        """Open the file.

        Raises:
            OSError: it cannot be written.
        """
        if self._report_to == STANDARD_OUTPUT:
            self._file = sys.stdout
        elif self._report_to is not None:
            self._file = Path(self._report_to).open("w", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None and self._file is not sys.stdout:
            self._file.close()

    def write(self, ending: Ending, tally: Tally) -> None:
        """Tell how it ended; a reader that has gone away is no reason to fail."""
        _print((f"aioproducer: {line}" for line in summary(ending, tally)), sys.stderr)
        if self._file is not None:
            _print([json.dumps(report(ending, tally), indent=2, ensure_ascii=False)], self._file)


def _print(lines: Iterable[str], file: TextIO) -> None:
    try:
        for line in lines:
            print(line, file=file)
        file.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())  # or the interpreter complains at its end
