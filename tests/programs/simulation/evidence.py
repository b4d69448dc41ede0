"""One line about many runs, so that long campaigns may be spread over days: `docs/evidence/*.jsonl`."""

import datetime as dt
import sys
from pathlib import Path

from tests.programs.evidence import Evidence
from tests.programs.simulation.campaign import Campaign, Outcome


def append_evidence(file: Path, campaign: Campaign, outcome: Outcome) -> None:
    """Append a line: what was run, of which code, and what came of it."""
    started = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=outcome.elapsed_s)
    Evidence(
        command=" ".join(["python -m tests.programs.simulation", *sys.argv[1:]]),
        seeds=[campaign.first, campaign.first + campaign.seeds - 1],
        start=started.isoformat(timespec="seconds"),
        outcome="no violation" if not outcome.failures else f"{len(outcome.failures)} runs with violations",
        digest=outcome.digest,
        totals={
            "families": list(campaign.families),
            "runs": outcome.runs,
            "failures": [failure.command for failure in outcome.failures[:100]],
        },
    ).append_to(file)
