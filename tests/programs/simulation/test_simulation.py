"""A few seeds of every family, that a seed decides everything, and that a run that fails becomes a small one.

The many are run by `python -m tests.programs.simulation`.
"""

import pytest

from aioproducer._accumulator import open_batches
from aioproducer._sender import sender
from tests.programs.simulation.campaign import Campaign, Failure, run_campaign, run_plan
from tests.programs.simulation.families import FAMILIES
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.shrinker import PLAIN_OPTIONS, shrink


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_invariant_is_broken(family: str, seed: int) -> None:
    result = run_plan(draw_plan(family, seed))

    found = [str(violation) for violation in result.violations]
    assert found == [], Failure(family=family, seed=seed, violations=found).command


@pytest.mark.parametrize("seed", [7_001, 7_006])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_invariant_is_broken_in_the_shortest_steps(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans have too few partitions to reach the bounds of a step as they are."""
    monkeypatch.setattr(open_batches, "MOST_PER_STEP", 2)
    monkeypatch.setattr(sender, "MOST_PER_STEP", 2)
    monkeypatch.setattr(sender, "MANY_BATCHES", 1)

    test_no_invariant_is_broken(family, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 10))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_invariant_is_broken_by_more_seeds(family: str, seed: int) -> None:
    test_no_invariant_is_broken(family, seed)


@pytest.mark.parametrize(
    "family, seed",
    [("D7", 20_081), ("D10", 17), ("D12", 36), ("D15", 10_032), ("D15", 476), ("D15", 2_812), ("D15", 4_561)],
)
def test_seed_that_has_found_a_defect_finds_none_any_more(family: str, seed: int) -> None:
    """The plans are drawn as they were then. D10, D12: an id expires. D15: so does a session, or it is refused."""
    test_no_invariant_is_broken(family, seed)


@pytest.mark.parametrize(
    "family, seed",
    [
        *(("D5", 20_026), ("D20", 20_221), ("D18", 4_300_973), ("D8", 4_600_952), ("D8", 404), ("D9", 294)),
        *(("D15", seed) for seed in (940, 2_023, 2_283, 3_241, 4_272, 4_719, 6_158, 30_010)),
    ],
)
def test_alarm_that_was_false_is_not_given_again(family: str, seed: int) -> None:
    """Former false alarms: a buffer of one batch; pauses of a minute, made by lies, or unused; sessions of old brokers.

    And requests repeated past an authentication, held at every broker, or sent in sessions of milliseconds; batches
    unpacked beyond the bound to take records out. And a protocol that was told of room after its connection's end.
    """
    test_no_invariant_is_broken(family, seed)


@pytest.mark.parametrize("family", ["D2", "D16"])
def test_seed_decides_everything(family: str) -> None:
    """A second run is the first again, recorded or not."""
    runs = [run_plan(draw_plan(family, 3), is_recording=is_recording) for is_recording in (False, True, True)]

    assert len({(run.digest, run.turns) for run in runs}) == 1
    assert runs[0].events == ()
    assert runs[1].events == runs[2].events != ()


def test_history_says_who_sent_what_and_what_the_brokers_did() -> None:
    events = "\n".join(run_plan(draw_plan("D2", 3), is_recording=True).events)

    assert all(who in events for who in ("caller", "producer", "network", "broker", "injector", "log"))


def test_ids_of_nodes_begin_at_0_in_some_runs() -> None:
    plans = [draw_plan("D2", seed) for seed in range(20)]
    [first, *_] = [plan for plan in plans if plan.first_node == 0]
    events = "\n".join(run_plan(first, is_recording=True).events)

    assert {plan.first_node for plan in plans} == {0, 1}
    assert "node 0, Produce #" in events


def test_campaign_adds_up_runs_of_all_families() -> None:
    outcome = run_campaign(Campaign(families=("D1", "D4"), first=0, seeds=2))

    assert outcome.runs == 4
    assert set(outcome.digests) == {("D1", 0), ("D1", 1), ("D4", 0), ("D4", 1)}
    assert {family: len(records) for family, records in outcome.records.items()} == {"D1": 2, "D4": 2}


def needs_two_faults_and_seven_records(plan: Plan) -> bool:
    """Stand for a defect that shows only then."""
    kinds = [planned.fault for planned in plan.faults]
    return {"stale metadata", "late responses"} <= set(kinds) and plan.records >= 7


def broken_plan() -> Plan:
    return next(
        plan
        for plan in (draw_plan("D5", seed) for seed in range(1000))
        if needs_two_faults_and_seven_records(plan) and len(plan.faults) > 5
    )


def test_only_what_is_needed_is_left() -> None:
    """One fault of each kind, seven records, one caller, plain options."""
    shrunk = shrink(broken_plan(), needs_two_faults_and_seven_records).plan

    assert sorted(planned.fault for planned in shrunk.faults) == ["late responses", "stale metadata"]
    assert (shrunk.records, shrunk.clients) == (7, 1)
    assert {name: shrunk.options[name] for name in PLAIN_OPTIONS} == PLAIN_OPTIONS


def test_command_names_what_is_left() -> None:
    shrinkage = shrink(broken_plan(), needs_two_faults_and_seven_records)

    assert "--family D5" in shrinkage.command
    assert "--records 7" in shrinkage.command
    assert f"--only-faults {','.join(map(str, shrinkage.faults or ()))}" in shrinkage.command


def test_options_that_cannot_go_together_are_passed_over() -> None:
    def is_broken(plan: Plan) -> bool:
        if plan.options["linger_ms"] == 0:
            raise ValueError("as the configuration does")
        return True

    assert shrink(draw_plan("D1", 1).with_options(linger_ms=5), is_broken).plan.options["linger_ms"] == 5
