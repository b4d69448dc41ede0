"""A password and an authority change under load on a real broker; `nox -s rotation` plays all that may change."""

import asyncio
from pathlib import Path

import pytest

from tests.programs.rotation.scenarios import cluster, play
from tests.programs.rotation.stage import Extent, MovingLoop, Result, compared

ONCE = Extent(reauthentications=4, times=1, gap_s=1.0)


async def play_each(names: list[str], folder: Path) -> list[Result]:
    async with cluster("4.4.0") as kafka:
        return [await play(name, kafka, folder, extent=ONCE) for name in names]


# A way that is cut while it connects leaves an open stream of asyncio's.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.kafka
@pytest.mark.slow(seconds=60)
def test_nothing_is_lost_while_security_changes_under_load(tmp_path: Path) -> None:
    names = ["password, broker first", "authority"]
    with asyncio.Runner(loop_factory=MovingLoop) as runner:
        results = runner.run(play_each(names, tmp_path))

    assert [result.row() for result in results if not result.is_good] == []
    assert all(result.transactions and result.found.records for result in results)


@pytest.mark.parametrize(
    "numbers, found",
    [
        ([0, 1, 2], (0, 0, 0)),
        ([0, 2], (1, 0, 0)),
        ([0, 1, 1, 2], (0, 1, 0)),
        ([1, 0, 2], (0, 0, 1)),
    ],
)
def test_what_is_wrong_in_a_log_is_found(numbers: list[int], found: tuple[int, int, int]) -> None:
    log = compared(numbers, 3)

    assert (log.lost, log.doubled, log.out_of_order) == found
