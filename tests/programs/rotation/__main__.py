"""Security that changes under load, on real brokers: `python -m tests.programs.rotation`, or `nox -s rotation`.

    --kafka 4.4.0            this release alone; both without
    --only NAME              this scenario alone; may be given again
    --reauthentications 100  so many of each mechanism

Three plain producers, together at half of what one of them can, and a transactional one. Another client reads all
records back. One line per scenario; fails if a record is lost, doubled or out of order, or a caller sees an error.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.programs.rotation.scenarios import SCENARIOS, cluster, play
from tests.programs.rotation.stage import Extent, MovingLoop

RELEASES = ("4.4.0", "3.9.1")


async def run(asked: argparse.Namespace) -> bool:
    good = [await _run_on(version, asked) for version in asked.kafka or RELEASES]
    return all(good)


async def _run_on(version: str, asked: argparse.Namespace) -> bool:
    is_good = True
    async with cluster(version) as kafka:
        for name in asked.only or SCENARIOS:
            with tempfile.TemporaryDirectory(prefix="rotation-") as folder:
                result = await play(name, kafka, Path(folder), extent=Extent(reauthentications=asked.reauthentications))
            print(result.row(), flush=True)
            is_good = is_good and result.is_good
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.rotation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kafka", choices=RELEASES, action="append")
    parser.add_argument("--only", choices=list(SCENARIOS), action="append")
    parser.add_argument("--reauthentications", type=int, default=100)
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=MovingLoop) as runner:
        return 0 if runner.run(run(asked)) else 1


if __name__ == "__main__":
    sys.exit(main())
