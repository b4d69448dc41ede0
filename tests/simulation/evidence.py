"""One line about many runs, so that long campaigns may be spread over days: `docs/evidence/*.jsonl`."""

import datetime as dt
import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

import aioproducer
from tests.simulation.campaign import Campaign, Outcome

PACKAGE = Path(aioproducer.__file__).parent
SOURCES = frozenset({".py", ".pyx", ".pxd", ".pyi"})


def append_evidence(file: Path, campaign: Campaign, outcome: Outcome) -> None:
    """Append a line: what was run, of which commit, and what came of it."""
    ended = dt.datetime.now(dt.UTC)
    line = {
        "commit": _commit(),
        "package": package_digest(),
        "command": " ".join(["python -m tests.simulation", *sys.argv[1:]]),
        "python": platform.python_version(),
        "families": list(campaign.families),
        "seeds": [campaign.first, campaign.first + campaign.seeds - 1],
        "runs": outcome.runs,
        "start": (ended - dt.timedelta(seconds=outcome.elapsed_s)).isoformat(timespec="seconds"),
        "end": ended.isoformat(timespec="seconds"),
        "outcome": "no violation" if not outcome.failures else f"{len(outcome.failures)} runs with violations",
        "failures": [failure.command for failure in outcome.failures[:100]],
        "digest": outcome.digest,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def package_digest(package: Path = PACKAGE) -> str:
    """The SHA-256 over names and contents of the package's sources."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in SOURCES:
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return asked.stdout.strip() or "unknown"
