"""A line of evidence says what was run, of what, and what came of it."""

import json
from pathlib import Path

from tests.programs.evidence import package_hash
from tests.programs.simulation.campaign import Campaign, Failure, Outcome
from tests.programs.simulation.evidence import append_evidence


def test_each_campaign_appends_a_line(tmp_path: Path) -> None:
    """Runs may be spread over days."""
    file = tmp_path / "evidence" / "simulation.jsonl"
    campaign = Campaign(families=("D1", "D2"), first=100, seeds=10)
    failed = Outcome(runs=20, failures=[Failure(family="D2", seed=104, violations=["C1: lost"])])

    append_evidence(file, campaign, Outcome(runs=20))
    append_evidence(file, campaign, failed)

    good, bad = map(json.loads, file.read_text("utf-8").splitlines())
    assert (good["seeds"], good["totals"]["runs"], good["outcome"]) == ([100, 109], 20, "no violation")
    assert bad["totals"]["failures"] == ["python -m tests.programs.simulation --family D2 --seed 104"]
    assert good["package"] == bad["package"] == package_hash()
