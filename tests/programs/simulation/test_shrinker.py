"""A run that fails becomes a small one that fails."""

from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.shrinker import PLAIN_OPTIONS, shrink


def needs_two_strikes_and_seven_records(plan: Plan) -> bool:
    """Stand for a defect that shows only then."""
    kinds = [strike.fault for strike in plan.strikes]
    return {"stale metadata", "late responses"} <= set(kinds) and plan.records >= 7


def broken_plan() -> Plan:
    return next(
        plan
        for plan in (draw_plan("D5", seed) for seed in range(1000))
        if needs_two_strikes_and_seven_records(plan) and len(plan.strikes) > 5
    )


def test_only_what_is_needed_is_left() -> None:
    """One strike of each kind, seven records, one caller, plain options."""
    shrunk = shrink(broken_plan(), needs_two_strikes_and_seven_records).plan

    assert sorted(strike.fault for strike in shrunk.strikes) == ["late responses", "stale metadata"]
    assert (shrunk.records, shrunk.clients) == (7, 1)
    assert {name: shrunk.options[name] for name in PLAIN_OPTIONS} == PLAIN_OPTIONS


def test_command_names_what_is_left() -> None:
    shrinkage = shrink(broken_plan(), needs_two_strikes_and_seven_records)

    assert "--family D5" in shrinkage.command
    assert "--records 7" in shrinkage.command
    assert f"--only-strikes {','.join(map(str, shrinkage.strikes or ()))}" in shrinkage.command


def test_options_that_cannot_go_together_are_passed_over() -> None:
    def is_broken(plan: Plan) -> bool:
        if plan.options["linger_ms"] == 0:
            raise ValueError("as the configuration does")
        return True

    assert shrink(draw_plan("D1", 1).with_options(linger_ms=5), is_broken).plan.options["linger_ms"] == 5
