"""Tests the native modules under AddressSanitizer and UndefinedBehaviorSanitizer.

`python -m tests.programs.sanitizers`.

A copy of the package is built with both, beside a module with two deliberate defects; if these are not reported, the
sanitizers are not on and nothing else counts. Then the native tests, journeys of a whole producer and a while of
fuzzing run on that build. The first report ends the program that caused it, and is printed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[3]
COPIED = ("aioproducer", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE")

PROTOCOL = ("tests/protocol/test_framing.py", "tests/protocol/test_produce.py", "tests/programs/fuzz/test_frames.py")
TESTS = ("tests/native", *PROTOCOL)
GATE_JOURNEY = "tests/journeys/test_memory_runs_out.py"  # memory is lent, given back and lent again
JOURNEYS = (
    "tests/journeys/test_batches.py",
    "tests/journeys/test_send_many.py",
    "tests/journeys/test_send_arrow.py",
    GATE_JOURNEY,
)
PROBES = (
    ("past_the_end(7)", None),
    ("past_the_end(8)", "heap-buffer-overflow"),
    ("shifted(40)", "shift exponent 40 is too large"),
)
"""Arguments of the deliberate defects, and what must be reported; None for the correct call."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.sanitizers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.5, help="of fuzzing at the end")
    parser.add_argument("--gate", action="store_true", help="one journey only, as .ci/run does")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sanitizers-") as folder:
        build = SanitizedBuild(Path(folder))
        build.make()
        build.probe()
        plugins = ("-p", "no:cacheprovider", "-p", "no:faulthandler")
        pytest = ("-m", "pytest", "-q", "--capture=sys", *plugins, "-m", "not slow and not timing")
        codes = [
            build.run(*pytest, *TESTS, *((GATE_JOURNEY,) if arguments.gate else JOURNEYS)),
            build.run("-m", "tests.programs.fuzz", "--minutes", str(arguments.minutes)),
        ]
    return max(codes)


class SanitizedBuild:
    """A copy of the project, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._tree = folder / "tree"
        self._reports = folder / "report"
        libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
        log = f"log_path={self._reports}:halt_on_error=1:print_stacktrace=1"
        self._environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(libraries),
            "PYTHONMALLOC": "malloc",  # or blocks would share what the sanitizer watches
            "PYTHONDONTWRITEBYTECODE": "1",
            # CPython frees little of its own at the end, so leaks are counted by tests/native/test_allocation_faults.py
            # A test asks for more than there can be, and wants MemoryError.
            "ASAN_OPTIONS": f"{log}:detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": log,
        }

    def make(self) -> None:
        self._tree.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self._tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            else:
                shutil.copy(ROOT / name, self._tree)
        shutil.copy(Path(__file__).parent / "overrun.pyx", self._tree / "aioproducer" / "_native")
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        environment = {**os.environ, "AIOPRODUCER_SANITIZED": "1"}
        subprocess.run(command, cwd=self._tree, env=environment, check=True, stdout=subprocess.DEVNULL)

    def probe(self) -> None:
        """Have both sanitizers report a defect, and this build be the one that is imported."""
        for call, report in PROBES:
            program = f"from aioproducer._native import overrun; print(overrun.__file__, overrun.{call})"
            done = self._started("-c", program, capture_output=True)
            found = self._take_reports() + done.stderr.decode()  # UBSan of gcc always writes there
            is_right = report in found and done.returncode != 0 if report else done.returncode == 0 and not found
            if not is_right or (report is None and str(self._tree) not in done.stdout.decode()):
                _give_up(f"the sanitizers are not on: {call} gave {done.returncode}\n{found}")
            print(f"probe: {call}: {report or 'no report'}", flush=True)

    def run(self, *arguments: str) -> int:
        code = self._started(*arguments).returncode
        found = self._take_reports()
        is_reported = "ERROR: " in found or "runtime error: " in found  # else warnings: a refused allocation is one
        print(found if is_reported else f"no report of a sanitizer: python {' '.join(arguments[:3])}", flush=True)
        return code or int(is_reported)

    def _started(self, *arguments: str, capture_output: bool = False) -> "subprocess.CompletedProcess[bytes]":
        command: Sequence[str] = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self._tree, env=self._environment, check=False, capture_output=capture_output
        )

    def _take_reports(self) -> str:
        found = ""
        for path in sorted(self._reports.parent.glob(f"{self._reports.name}*")):
            found += path.read_text("utf-8", errors="replace")
            path.unlink()
        return found


def _library(name: str) -> str:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    asked = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = asked.stdout.strip()
    if not Path(path).is_absolute():
        _give_up(f"{name} was not found by {compiler}; install gcc with its sanitizers (libasan, libubsan)")
    return path


def _give_up(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(1)


sys.exit(main())
