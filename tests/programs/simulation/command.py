"""The command line: `--family D2 --seed 123` replays one run, `--seeds 1000 --all` lives many through."""

import argparse
import math
import sys

from tests.programs.simulation.campaign import Campaign, live_through_many
from tests.programs.simulation.families import FAMILIES
from tests.programs.simulation.plan import Plan, draw_plan
from tests.programs.simulation.report import print_campaign, print_plan, print_verdict
from tests.programs.simulation.run import live_through
from tests.programs.simulation.scene_command import add_arguments, play_or_search
from tests.programs.simulation.shrinker import Shrinkage, breaks, shrink

_SCHEDULE_HELP = "who goes first where asyncio leaves it open: as asyncio does it, or by random priorities"


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.scene:
        is_good = play_or_search(arguments)
    else:
        is_good = _replay(arguments) if arguments.seed is not None else _many(arguments)
    sys.exit(0 if is_good else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.simulation", description=__doc__)
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append", help="which; may be given again")
    parser.add_argument("--all", action="store_true", help="all families")
    parser.add_argument("--seed", type=int, help="replay this one, and print its history if it fails")
    parser.add_argument("--verbose", action="store_true", help="print the history of the replayed run in any case")
    parser.add_argument("--shrink", action="store_true", help="search for a smaller run that fails in the same way")
    parser.add_argument("--only-strikes", metavar="N,N", help="of the plan's strikes, only these (from 0)")
    parser.add_argument("--records", type=int, help="no more records than these")
    parser.add_argument("--callers", type=int, help="no more callers than these")
    parser.add_argument("--set", metavar="OPTION=VALUE", action="append", default=[], help="another producer option")
    parser.add_argument("--schedule", choices=("fifo", "pct"), default="fifo", help=_SCHEDULE_HELP)
    parser.add_argument("--seeds", type=int, default=100, help="how many of each family")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more runs after these")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--until-first", action="store_true", help="stop at the first broken invariant")
    add_arguments(parser)
    return parser


def _replay(arguments: argparse.Namespace) -> bool:
    families = arguments.family or []
    if len(families) != 1:
        raise SystemExit("--seed needs exactly one --family")
    plan = _changed(draw_plan(families[0], arguments.seed, schedule=arguments.schedule), arguments)
    verdict = live_through(plan)
    shrinkage = Shrinkage(plan)
    if arguments.shrink and verdict.violations:
        shrinkage = shrink(plan, breaks(verdict.violations[0].invariant))
    is_shown = arguments.verbose or bool(verdict.violations)
    print_plan(shrinkage.plan)
    print_verdict(live_through(shrinkage.plan, is_recording=is_shown), shrinkage)
    return not verdict.violations


def _changed(plan: Plan, arguments: argparse.Namespace) -> Plan:
    shrinkage = Shrinkage(plan)
    if arguments.only_strikes is not None:
        shrinkage = shrinkage.with_strikes([int(each) for each in arguments.only_strikes.split(",") if each])
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
    outcome = live_through_many(campaign)
    print_campaign(campaign, outcome)
    return not outcome.failures
