"""A password and an authority change under load on a real broker; `nox -s rotation` plays all that may change."""

import asyncio
from pathlib import Path

import pytest

from tests.programs.rotation.scenarios import cluster, play
from tests.programs.rotation.stage import Extent, MovingLoop, Result, compared

ONCE = Extent(reauthentications=4, times=1, gap_s=1.0)


async def play_one(name: str, folder: Path) -> Result:
    async with cluster("4.4.0") as kafka:
        return await play(name, kafka, folder, extent=ONCE)


# A way that is cut while it connects leaves an open stream of asyncio's.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.kafka
@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("name", ["password, broker first", pytest.param("authority", marks=pytest.mark.nightly)])
def test_nothing_is_lost_while_security_changes_under_load(tmp_path: Path, name: str) -> None:
    with asyncio.Runner(loop_factory=MovingLoop) as runner:
        result = runner.run(play_one(name, tmp_path))

    assert result.is_good, result.row()
    assert result.transactions
    assert result.found.records


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
