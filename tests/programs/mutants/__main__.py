"""Deliberate bugs that the tests must find: `python -m tests.programs.mutants`, or `nox -s mutants`.

Each mutant is one small bug, put into a copy of the package; the simulation runs on the copy until it finds it. A
mutant that survives means that the simulation is too weak. `docs/explanation/mutants.md` says more.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.programs.mutants.session import MUTANTS, SIX_SECONDS, Session, chosen_by


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:44} {','.join((*mutant.families, *mutant.tests)):40} {mutant.breaks}")
        return 0
    mutants = [mutant for mutant in MUTANTS if not arguments.name or mutant.name in arguments.name]
    if unknown := set(arguments.name) - {mutant.name for mutant in mutants}:
        raise SystemExit(f"no such mutant: {', '.join(sorted(unknown))}")
    seconds = arguments.seconds
    if arguments.six is not None:
        mutants, seconds = chosen_by(arguments.six, MUTANTS), min(seconds, SIX_SECONDS)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        limits = {"seeds": arguments.seeds, "seconds": seconds}
        session = Session(mutants, Path(folder), **limits, say=_say, runs_tests=not arguments.simulation)
        is_good = session.run()
    killed = sum(death.is_good for death in session.deaths)
    _say(f"{killed} of {len(mutants)} mutants killed")
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.mutants", description=__doc__)
    parser.add_argument("name", nargs="*", help="of a mutant; all without")
    parser.add_argument("--list", action="store_true", help="show them and do nothing")
    parser.add_argument("--six", metavar="HASH", help="six of them, chosen by a commit's hash, 90 s each at most")
    parser.add_argument("--simulation", action="store_true", help="by the simulation alone, also where tests are named")
    parser.add_argument("--seeds", type=int, default=1000, help="of each family, at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each mutant, at most")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


sys.exit(main())
