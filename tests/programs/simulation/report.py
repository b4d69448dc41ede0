"""Prints runs so that a person can follow them: sends, network events, and the brokers' actions."""

from statistics import median

from tests.programs.simulation.campaign import Campaign, Outcome
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.run import Verdict
from tests.programs.simulation.shrinker import Shrinkage

_SHOWN = 20


def print_plan(plan: Plan) -> None:
    print(f"{plan.family.name}, {plan.family.title}: seed {plan.seed}")
    print(
        f"  {plan.records} records of {plan.clients} callers, {plan.partitions} partitions, {plan.brokers} brokers "
        f"({plan.profile}), {plan.replication} copies, {plan.min_insync} in sync at least"
    )
    print(f"  latency {plan.latency_s:.4f} s + {plan.jitter_s:.4f} s, chaos for {plan.chaos_s:.2f} s")
    print("  " + ", ".join(f"{name}={value}" for name, value in plan.options.items()))
    for number, strike in enumerate(plan.strikes):
        print(f"  strike {number} after {strike.at_s:.4f} s: {strike.fault}")


def print_verdict(verdict: Verdict, shrinkage: Shrinkage) -> None:
    print()
    for event in verdict.events:
        print(event)
    print()
    print(", ".join(f"{count} {end}" for end, count in verdict.ends.most_common()), f"| digest {verdict.digest:08x}")
    for violation in verdict.violations:
        print(f"VIOLATED {violation}")
    if verdict.violations:
        print(f"again: {shrinkage.command}")


def print_campaign(campaign: Campaign, outcome: Outcome) -> None:
    print(f"faults that had an effect: {_counted(outcome.faults)}")
    for api in sorted({api for api, _ in outcome.error_codes}):
        codes = {code: count for (name, code), count in sorted(outcome.error_codes.items()) if name == api}
        print(f"error codes of {api}: {_counted(codes)}")
    print(f"states: {_counted(outcome.states)}")
    print(f"ends of records: {_counted(outcome.ends)}")
    for family in campaign.families:
        records, brokers = outcome.records.get(family, [0]), outcome.brokers.get(family, [0])
        print(
            f"{family}: {len(records)} runs, records median {median(records):g} (least {min(records)}, most "
            f"{max(records)}), brokers median {median(brokers):g} (least {min(brokers)})"
        )
    for failure in outcome.failures[:_SHOWN]:
        print(f"VIOLATED {failure.violations[0]:.300}\n  {failure.command} --shrink")
    print(
        f"{outcome.runs} runs in {outcome.elapsed_s:.1f} s, {outcome.runs / max(outcome.cpu_s, 1e-9):.1f} runs a "
        f"second of one core, {outcome.turns / max(outcome.runs, 1):.0f} turns of the loop a run"
    )
    print(f"digest {outcome.digest}, {len(outcome.failures)} runs with violations")


def _counted(counts: "dict[str, int] | dict[int, int]") -> str:
    return ", ".join(f"{key} x{count}" for key, count in sorted(counts.items(), key=lambda pair: _natural(pair[0])))


def _natural(key: str | int) -> tuple[int, str]:
    if isinstance(key, int):
        return key, ""
    digits = key.lstrip("F")
    return (int(digits), "") if digits.isdigit() else (0, key)
