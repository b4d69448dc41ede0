"""Runs an installation and shows what it is doing, with a line at least every four seconds; all output if it fails.

    python show_progress.py pip install -v ...

What to show is known of pip, Cython and setuptools, whose own output is hundreds of lines.
"""

import os
import queue
import re
import subprocess
import sys
import threading
import time

LONGEST_SILENCE_S = 4.0
STEPS = (
    re.compile(r"^\s*(Collecting [^\s(]+)"),
    re.compile(r"^\s*(Downloading \S+ \([^)]+\))"),
    re.compile(r"^\s*(Installing collected packages)"),
    re.compile(r"^\s*(Preparing (?:editable )?metadata|Building (?:editable|wheel) for \S+).*: started"),
    re.compile(r"^\s*\[\s*\d+/\d+\] (Cythonizing \S+)"),
)
BEGUN = re.compile(r"^\s*building '(?:\w+\.)*(\w+)' extension")
LINKED = re.compile(r"\s-shared\s.*?[\\/](\w+)\.[^\\/\s]*\.so\b")


class Progress:
    """What a program has said so far, and what is to be shown of it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._step = "starting"
        self._compiling: list[str] = []
        self._compiled = 0

    def read(self, line: str) -> "str | None":
        """Return the line to show for a line of the program, if any."""
        for pattern in STEPS:
            found = pattern.match(line)
            if found is not None:
                self._step = found[1]
                return self._shown(found[1])
        begun, linked = BEGUN.match(line), LINKED.search(line)
        if begun is not None:
            self._compiling.append(begun[1])
            return self.still()
        if linked is not None and linked[1] in self._compiling:
            self._compiling.remove(linked[1])
            self._compiled += 1
        return None

    def still(self) -> str:
        """Return the line that says what goes on."""
        if self._compiling:
            return self._shown(f"compiling {', '.join(self._compiling)}; modules done: {self._compiled}")
        return self._shown(f"still: {self._step}")

    def _shown(self, text: str) -> str:
        return f"  {time.monotonic() - self._began:4.0f} s  {text}"


def main() -> int:
    """Run the command, and return its exit code."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(  # noqa: S603  # what noxfile.py gives
        sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    lines: "queue.Queue[str | None]" = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    progress, said = Progress(), []
    while True:
        try:
            line = lines.get(timeout=LONGEST_SILENCE_S)
        except queue.Empty:
            print(progress.still(), flush=True)
            continue
        if line is None:
            break
        said.append(line)
        shown = progress.read(line)
        if shown is not None:
            print(shown, flush=True)
    code = process.wait()
    if code:
        print("".join(said), file=sys.stderr, flush=True)
    return code


def _read(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


if __name__ == "__main__":
    sys.exit(main())
