"""The part of the command line that is about scenes: `--scene all`, or one, replayed with `--deviations 3:1,7:2`."""

import argparse

from tests.programs.simulation.report import print_plan, print_verdict
from tests.programs.simulation.scenes import SCENES
from tests.programs.simulation.search import MOST_DEVIATIONS, Deviation, schedule_of, search
from tests.programs.simulation.shrinker import Shrinkage
from tests.programs.simulation.stage import play


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scene", choices=("all", *SCENES), action="append", help="try all orders of it; again for more"
    )
    parser.add_argument(
        "--deviations", metavar="N:W,N:W", help="replay the scene with these; 'none' for asyncio's order"
    )
    parser.add_argument("--most-deviations", type=int, default=MOST_DEVIATIONS, help="of one schedule, in a search")


def play_or_search(arguments: argparse.Namespace) -> bool:
    names = list(SCENES) if "all" in arguments.scene else arguments.scene
    is_good = True
    for name in names:
        if arguments.deviations is not None:
            is_good &= _replay(name, arguments.deviations)
        else:
            is_good &= _search(name, arguments.most_deviations)
    return is_good


def _replay(name: str, text: str) -> bool:
    deviations: list[Deviation] = []
    for pair in text.split(",") if text != "none" else []:
        choice, _, way = pair.partition(":")
        deviations.append((int(choice), int(way)))
    verdict = play(SCENES[name], schedule_of(deviations), is_recording=True)
    print_plan(verdict.plan)
    print_verdict(verdict, Shrinkage(verdict.plan))
    return not verdict.violations


def _search(name: str, most_deviations: int) -> bool:
    found = search(SCENES[name], most_deviations=most_deviations)
    print(
        f"{name}: {found.schedules} schedules with at most {most_deviations} deviations at {found.choices} choices, "
        f"all there are; {len(found.digests)} different ends, {len(found.broken)} broken",
        flush=True,
    )
    for broken in found.broken[:3]:
        print(f"VIOLATED {broken}")
    return not found.broken
