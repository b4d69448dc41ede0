"""Runs the whole, unmodified producer in virtual time: a seed decides everything, and checkers look for violations.

`python -m tests.programs.simulation --family D2 --seed 123` replays one run, `--seeds 1000 --all` does many;
`coverage run --branch -m tests.programs.simulation --all` shows which lines they reach. Nothing here reads a clock,
opens a socket or draws unseeded randomness. `docs/explanation/simulation.md` explains the parts and their words.
"""

import argparse
import math
import sys
from statistics import median

from tests.programs.simulation.campaign import Campaign, Outcome, run_campaign, run_plan
from tests.programs.simulation.families import FAMILIES
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.run import RunResult
from tests.programs.simulation.scenarios import MOST_DEVIATIONS, SCENARIOS, Deviation, play, schedule_of, search
from tests.programs.simulation.shrinker import Shrinkage, breaks, shrink

_DESCRIPTION = "`--family D2 --seed 123` replays one run, `--seeds 1000 --all` does many."
_SCHEDULE_HELP = "who goes first where asyncio leaves it open: as asyncio does it, or by random priorities"


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.scenario:
        is_good = play_or_search(arguments)
    else:
        is_good = _replay(arguments) if arguments.seed is not None else _many(arguments)
    sys.exit(0 if is_good else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.simulation", description=_DESCRIPTION)
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append", help="which; may be given again")
    parser.add_argument("--all", action="store_true", help="all families")
    parser.add_argument("--seed", type=int, help="replay this one, and print its history if it fails")
    parser.add_argument("--verbose", action="store_true", help="print the history of the replayed run in any case")
    parser.add_argument("--shrink", action="store_true", help="search for a smaller run that fails in the same way")
    parser.add_argument("--only-faults", metavar="N,N", help="of the plan's faults, only these (from 0)")
    parser.add_argument("--records", type=int, help="no more records than these")
    parser.add_argument("--callers", type=int, help="no more callers than these")
    parser.add_argument("--set", metavar="OPTION=VALUE", action="append", default=[], help="another producer option")
    parser.add_argument("--schedule", choices=("fifo", "pct"), default="fifo", help=_SCHEDULE_HELP)
    parser.add_argument("--seeds", type=int, default=100, help="how many of each family")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more runs after these")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--until-first", action="store_true", help="stop at the first broken invariant")
    _add_scenario_arguments(parser)
    return parser


def _replay(arguments: argparse.Namespace) -> bool:
    families = arguments.family or []
    if len(families) != 1:
        raise SystemExit("--seed needs exactly one --family")
    plan = _changed(draw_plan(families[0], arguments.seed, schedule=arguments.schedule), arguments)
    result = run_plan(plan)
    shrinkage = Shrinkage(plan)
    if arguments.shrink and result.violations:
        shrinkage = shrink(plan, breaks(result.violations[0].invariant))
    is_shown = arguments.verbose or bool(result.violations)
    print_plan(shrinkage.plan)
    print_result(run_plan(shrinkage.plan, is_recording=is_shown), shrinkage)
    return not result.violations


def _changed(plan: Plan, arguments: argparse.Namespace) -> Plan:
    shrinkage = Shrinkage(plan)
    if arguments.only_faults is not None:
        shrinkage = shrinkage.with_faults([int(each) for each in arguments.only_faults.split(",") if each])
    if arguments.records is not None:
        shrinkage = shrinkage.with_records(arguments.records)
    if arguments.callers is not None:
        shrinkage = shrinkage.with_callers(arguments.callers)
    for setting in arguments.set:
        name, _, value = setting.partition("=")
        shrinkage = shrinkage.with_option(name, int(value) if value.lstrip("-").isdigit() else value)
    return shrinkage.plan


def _many(arguments: argparse.Namespace) -> bool:
    families = sorted(FAMILIES, key=lambda name: int(name[1:])) if arguments.all else arguments.family
    if not families:
        raise SystemExit("name a --family, or --all")
    campaign = Campaign(
        families=tuple(families),
        first=arguments.first,
        seeds=arguments.seeds,
        jobs=arguments.jobs,
        stops_at_first=arguments.until_first,
        seconds=60 * arguments.minutes,
        schedule=arguments.schedule,
    )
    outcome = run_campaign(campaign)
    print_campaign(campaign, outcome)
    return not outcome.failures


def _add_scenario_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", choices=("all", *SCENARIOS), action="append", help="try all orders of it; again for more"
    )
    parser.add_argument(
        "--deviations", metavar="N:W,N:W", help="replay the scenario with these; 'none' for asyncio's order"
    )
    parser.add_argument("--most-deviations", type=int, default=MOST_DEVIATIONS, help="of one schedule, in a search")


def play_or_search(arguments: argparse.Namespace) -> bool:
    names = list(SCENARIOS) if "all" in arguments.scenario else arguments.scenario
    is_good = True
    for name in names:
        if arguments.deviations is not None:
            is_good &= _replay_scenario(name, arguments.deviations)
        else:
            is_good &= _search_scenario(name, arguments.most_deviations)
    return is_good


def _replay_scenario(name: str, text: str) -> bool:
    deviations: list[Deviation] = []
    for pair in text.split(",") if text != "none" else []:
        choice, _, way = pair.partition(":")
        deviations.append((int(choice), int(way)))
    result = play(SCENARIOS[name], schedule_of(deviations), is_recording=True)
    print_plan(result.plan)
    print_result(result, Shrinkage(result.plan))
    return not result.violations


def _search_scenario(name: str, most_deviations: int) -> bool:
    found = search(SCENARIOS[name], most_deviations=most_deviations)
    print(
        f"{name}: {found.schedules} schedules with at most {most_deviations} deviations at {found.choices} choices, "
        f"all there are; {len(found.digests)} different ends, {len(found.broken)} broken",
        flush=True,
    )
    for broken in found.broken[:3]:
        print(f"VIOLATED {broken}")
    return not found.broken


_SHOWN = 20


def print_plan(plan: Plan) -> None:
    print(f"{plan.family.name}, {plan.family.title}: seed {plan.seed}")
    print(
        f"  {plan.records} records of {plan.clients} callers, {plan.partitions} partitions, {plan.brokers} brokers "
        f"({plan.profile}), {plan.replication} copies, {plan.min_insync} in sync at least"
    )
    print(f"  latency {plan.latency_s:.4f} s + {plan.jitter_s:.4f} s, chaos for {plan.chaos_s:.2f} s")
    print("  " + ", ".join(f"{name}={value}" for name, value in plan.options.items()))
    for number, planned in enumerate(plan.faults):
        print(f"  fault {number} after {planned.at_s:.4f} s: {planned.fault}")


def print_result(result: RunResult, shrinkage: Shrinkage) -> None:
    print()
    for event in result.events:
        print(event)
    print()
    print(", ".join(f"{count} {end}" for end, count in result.ends.most_common()), f"| digest {result.digest:08x}")
    for violation in result.violations:
        print(f"VIOLATED {violation}")
    if result.violations:
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
    return ", ".join(f"{key} x{count}" for key, count in sorted(counts.items()))


main()
