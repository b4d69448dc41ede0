"""Where the report of `aioproducer produce` goes."""

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from aioproducer.cli.exit_codes import EXIT_FAILED
from aioproducer.cli.producing.inputs import Input
from aioproducer.cli.producing.report import TransactionResult, report, summary
from aioproducer.cli.producing.tally import Tally
from aioproducer.cli.standard_streams import discard, tell

STANDARD_OUTPUT = "-"


class Output:
    """The summary on standard error, the JSON report where it is wanted.

    Args:
        report_to: a file, `-` for standard output, `None` for no report.
    """

    def __init__(self, report_to: str | None) -> None:
        self._report_to = report_to
        self._file: BinaryIO | None = None

    def problem(self, inputs: Sequence[Input]) -> str | None:
        """Why the report cannot be written there; `None`: nothing is known against it."""
        if self._report_to in {None, STANDARD_OUTPUT}:
            return None
        if not self._report_to:
            return "--report must name a file, or be - for standard output; it is empty"
        path = Path(self._report_to)
        for source in inputs:
            if _is_same_file(path, source.path):
                return f"--report {path}: that is an input"
        return None

    def open(self) -> None:
        """Open the report's file, and empty it; to be called before anything is sent.

        Raises:
            OSError: it cannot be written.
        """
        if self._report_to == STANDARD_OUTPUT:
            self._file = sys.stdout.buffer
        elif self._report_to is not None:
            self._file = Path(self._report_to).open("wb")  # noqa: SIM115 - `write` closes it

    def write(self, ending: TransactionResult, tally: Tally) -> int:
        """Tell how it ended; a reader that has gone away is no reason to fail.

        Returns:
            The exit code: that of the run; 1 if it was 0 and the report cannot be written, which is told.
        """
        for line in summary(ending, tally):
            tell(f"aioproducer: {line}")
        if self._file is None or (error := _write(self._file, _as_json(report(ending, tally)))) is None:
            return ending.exit_code
        why = f"--report {self._report_to}: {error.strerror or error}"
        tell(f"aioproducer: {why}; the report is missing, what became of the records is as told")
        return ending.exit_code or EXIT_FAILED


def _is_same_file(path: Path, other: str | None) -> bool:
    """Whether both are there and one file; a path that cannot be looked at cannot be opened either, which tells why.

    Args:
        path: of the report.
        other: of an input; `None` is standard input, which a shell may have taken from a file (`< in.txt`).
    """
    try:
        found, of_input = path.stat(), os.fstat(0) if other is None else Path(other).stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and os.path.samestat(found, of_input)


def _as_json(found: dict[str, object]) -> bytes:
    """UTF-8; bytes of a file's name that are none become escapes, as JSON has them."""
    return json.dumps(found, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _write(file: BinaryIO, content: bytes) -> OSError | None:
    """Write it all, and close the file unless it is standard output; returns why that failed."""
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        discard(file)
        return None if isinstance(error, BrokenPipeError) else error
    finally:
        if file is not sys.stdout.buffer:
            file.close()
    return None
