"""Transactions on real brokers that are killed, frozen and cut off.

`python -m tests.programs.chaos.transactions --minutes 60`.

| workload | processes |
|---|---|
| W3 | `alone-1`, `alone-2`: 32 producers in each, each with its own id: transactions of 10 records, 30% aborted |
| W4 | `copier`: consume, transform, produce (`tests/integrations`) |
| W5 | `teller`: transfers between ten accounts, whose sum stays |
| W6 | `rival-1`, `rival-2`: as W3, with one id between them: each fences the other, again and again |
| W9 | `completer`: starts processes that prepare transactions and kill themselves (SIGKILL), and completes each |
| W7 | any of them is stopped (SIGSTOP), also for longer than its transaction may be open, and goes on |
| W8 | any of them is killed (SIGKILL) and started again with the same id |

At the end of each session an independent client reads what is committed (ATOMIC, OFFSETS, FENCED). Prints a line
of JSON per session and a summary; exit code 1 if anything was violated.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kafka_releases import RELEASES
from tests.programs.chaos.arena import now
from tests.programs.chaos.cell import open_arena
from tests.programs.chaos.transacting.session import Session

COPIES_PER_S = 8
SETTINGS = {"replica.fetch.min.bytes": "16384", "replica.fetch.wait.max.ms": "20"}
"""Settings of brokers: followers fetch new records within 20 ms, and leave more of two cores to transactions."""


@dataclass(frozen=True, slots=True)
class Campaign:
    seconds: float
    folder: Path
    is_secured: bool = False

    async def run_session(self, release: str, seed: int) -> dict[str, Any]:
        folder, at = self.folder / f"{release}-{seed}", time.monotonic()
        folder.mkdir(parents=True)
        print(f"{now()} Kafka {release}, seed {seed}, {folder}", flush=True)
        outcome = {"release": release, **await self._outcome(release, seed, folder)}
        outcome["seconds"] = round(time.monotonic() - at)
        print(json.dumps(outcome), flush=True)
        if not outcome["violations"] and not outcome["problems"]:
            shutil.rmtree(folder)
        return outcome

    async def _outcome(self, release: str, seed: int, folder: Path) -> dict[str, Any]:
        """Return figures, faults, violations and other problems of a session."""
        async with open_arena(release, seed, folder, settings=SETTINGS, is_secured=self.is_secured) as arena:
            session = Session(arena, random.Random(seed), copies=int(self.seconds * COPIES_PER_S))
            try:
                verdict = await session.run(self.seconds)
            except asyncio.CancelledError:
                shutil.rmtree(folder)
                raise
            except Exception as error:  # noqa: BLE001 - reported as the session's outcome; the next one still runs
                return {"faults": session.faults, "violations": {}, "problems": [f"{type(error).__name__}: {error}"]}
        return {
            **verdict.figures,
            "faults": dict(sorted(session.faults.items())),
            "violations": verdict.violations,
            "told": verdict.told,
            "problems": session.problems,
        }


async def run(campaign: Campaign, sessions: Iterator[tuple[int, str]], minutes: float) -> list[dict[str, Any]]:
    """Sessions, each with its seed and release, until the time is over, one at least; SIGTERM and Ctrl-C end it too."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    until, outcomes = time.monotonic() + minutes * 60, list[dict[str, Any]]()
    for seed, release in sessions:
        try:
            outcomes.append(await campaign.run_session(release, seed))
        except asyncio.CancelledError:
            print("  stopped: this session counts for nothing")
            break
        if time.monotonic() >= until:
            break
    return outcomes


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.chaos.transactions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kafka", choices=[*RELEASES], action="append", help="only this release; may be given again")
    parser.add_argument("--minutes", type=float, default=0, help="no session begins after that; 0 for one session")
    parser.add_argument("--seconds", type=float, default=180, help="of each session, its start and end not counted")
    parser.add_argument("--secured", action="store_true", help="SASL over TLS for W3 and W6, sessions of ten seconds")
    parser.add_argument("--seed", type=int, default=None, help="of the first session; each other has the next one")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """0 if nothing was violated and nothing else went wrong, 1 otherwise."""
    asked = arguments(given)
    folder = Path(tempfile.mkdtemp(prefix="chaos-transactions-"))
    campaign = Campaign(seconds=asked.seconds, folder=folder, is_secured=asked.secured)
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    sessions = enumerate(itertools.cycle(asked.kafka or RELEASES), seed)
    totals = by_release(iter(asyncio.run(run(campaign, sessions, asked.minutes))))
    print("\n".join([*table(totals), "", faults_told(totals["all"]), *totals["all"].problems]))
    with contextlib.suppress(OSError):
        folder.rmdir()  # sessions that went wrong keep it
    return 0 if totals["all"].is_clean else 1


# The sum of all sessions


ENDS = ("committed", "aborted", "unknown", "killed")
VISIBLE_AFTER_ALL = "unknown or killed, and visible"


@dataclass(slots=True)
class Totals:
    sessions: int = 0
    seconds: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Transactions by how they ended, transfers among them, and how many of those without a known end are visible."""
    transfers: int = 0
    copies: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, outcome: Mapping[str, Any]) -> None:
        self.sessions += 1
        self.seconds += outcome["seconds"]
        for kind in ("transactions", "transfers"):
            self.ends.update(outcome.get(kind, {}))
        self.transfers += sum(outcome.get("transfers", {}).get(end, 0) for end in ENDS)
        self.copies += outcome.get("copies", 0)
        self.faults.update(outcome["faults"])
        self.violations.update(outcome["violations"])
        self.problems += outcome["problems"]

    @property
    def is_clean(self) -> bool:
        return bool(self.sessions) and not self.violations and not self.problems

    @property
    def transactions(self) -> int:
        return sum(self.ends[end] for end in ENDS)

    def rows(self) -> Iterator[tuple[str, int]]:
        yield "sessions", self.sessions
        yield "minutes", round(self.seconds / 60)
        yield "transactions", self.transactions
        yield "of them committed", self.ends["committed"]
        yield "aborted", self.ends["aborted"]
        yield "of unknown end", self.ends["unknown"]
        yield "of a process that was killed", self.ends["killed"]
        yield "of the last two kinds, found committed", self.ends[VISIBLE_AFTER_ALL]
        yield "transfers among them", self.transfers
        yield "records copied (consume, transform, produce)", self.copies
        yield "faults", self.faults.total()
        yield "violations", self.violations.total()
        yield "other problems", len(self.problems)


def by_release(outcomes: Iterator[Mapping[str, Any]]) -> dict[str, Totals]:
    totals: dict[str, Totals] = {}
    for outcome in outcomes:
        for name in (outcome["release"], "all"):
            totals.setdefault(name, Totals()).add(outcome)
    return {**{name: totals[name] for name in sorted(totals) if name != "all"}, "all": totals.get("all", Totals())}


def table(totals: Mapping[str, Totals]) -> Iterator[str]:
    yield f"| | {' | '.join(totals)} |"
    yield f"|---|{'---:|' * len(totals)}"
    for same in zip(*(each.rows() for each in totals.values()), strict=True):
        yield f"| {same[0][0]} | {' | '.join(f'{value:,}' for _, value in same)} |"


def faults_told(totals: Totals) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(totals.faults.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
