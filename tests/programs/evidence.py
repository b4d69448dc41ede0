"""Evidence of long runs: one JSON line a run, appended to `docs/evidence/NAME.jsonl`.

A line says which code ran (commit, and a hash of the package's files, because a tree may differ from its commit),
by which command and seeds, from when to when, how it ended, and a digest of what the run wrote, by which a repeated
run is compared.
"""

import datetime as dt
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioproducer"
SOURCE_SUFFIXES = {".py", ".pyx", ".pxd", ".pyi"}


def now() -> str:
    """The time in UTC, to the second."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def package_hash(package: Path = PACKAGE) -> str:
    """SHA-256 over names and contents of the package's sources, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in SOURCE_SUFFIXES):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def commit() -> str:
    """The commit that is checked out, with `+` if files of the package differ from it; "unknown" outside git."""
    try:
        name = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "aioproducer")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}+" if changed else name


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one run leaves behind."""

    command: str
    """As it can be typed again."""

    seeds: Mapping[str, object] | Sequence[int]
    """All that was chosen at random: a list, or first and count by family."""

    start: str
    """Of `now`, before the run."""

    outcome: str
    """"no violation", or how many."""

    digest: str
    """SHA-256 of the run's log: the same seeds on the same code give the same digest where a run is deterministic."""

    totals: Mapping[str, object] = field(default_factory=dict)
    """What was counted: runs, records, faults, violations."""

    package: str = field(default_factory=package_hash)
    """Of `package_hash`, when the run began if the caller took it then."""

    commit: str = field(default_factory=commit)
    """Of `commit`."""

    def line(self) -> str:
        """One JSON line."""
        return json.dumps(
            {
                "commit": self.commit,
                "package": self.package,
                "python": sys.version.split()[0],
                "command": self.command,
                "seeds": self.seeds if isinstance(self.seeds, Mapping) else list(self.seeds),
                "start": self.start,
                "end": now(),
                "outcome": self.outcome,
                "digest": self.digest,
                "totals": dict(self.totals),
            }
        )

    def append_to(self, file: Path) -> None:
        """Append the line; the system keeps lines of several writers apart."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(self.line() + "\n")


def _git(*arguments: str) -> str:
    """What a git command prints."""
    ran = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()
