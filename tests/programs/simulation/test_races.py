"""Deliberate races in copies of the package: the search and the priorities find what the plain order does not show."""

import subprocess
from pathlib import Path

import pytest

from tests.programs.mutants.mutant import Change, Mutant
from tests.programs.mutants.workshop import Tree

TOLD_WHO_GAVE_UP = Mutant(
    name="flush_tells_who_gave_up",
    breaks="an answer in the same turn of the loop in which a flush gives up ends the producer",
    changes=(Change("_sender/flush.py", "", "not finished.done()", "finished.cancelled() or not finished.done()"),),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    plain = Tree(tmp_path_factory.mktemp("races") / "plain")
    plain.fill()
    return plain.mutated(TOLD_WHO_GAVE_UP)


def simulated(tree: Tree, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = tree.run("-m", "tests.programs.simulation", *arguments)
    assert done.stderr == ""
    return done


def test_race_fits_the_code(tmp_path: Path) -> None:
    (tmp_path / "_sender").mkdir()
    (tmp_path / "_sender/flush.py").write_text(
        (Path(__file__).parents[3] / "aioproducer" / "_sender/flush.py").read_text("utf-8"), "utf-8"
    )

    TOLD_WHO_GAVE_UP.apply(tmp_path)


@pytest.mark.slow
def test_search_finds_the_race_and_the_plain_order_does_not(copy: Tree) -> None:
    scene = ("--scene", "flush_gives_up_as_the_answer_comes")
    plain = simulated(copy, *scene, "--most-deviations", "0")
    assert plain.returncode == 0

    found = simulated(copy, *scene, "--most-deviations", "2")
    assert found.returncode == 1
    deviations = found.stdout.strip().rpartition("--deviations ")[2]
    assert simulated(copy, *scene, "--deviations", deviations).returncode == 1


PRIORITIES = """
from tests.programs.simulation.scenes import SCENES
from tests.programs.simulation.schedules import PrioritySchedule
from tests.programs.simulation.stage import LAG_S, play

scene = SCENES["flush_gives_up_as_the_answer_comes"]
print(sum(bool(play(scene, PrioritySchedule(seed, horizon=10, lag_s=LAG_S)).violations) for seed in range(150)))
"""


@pytest.mark.slow
def test_priorities_find_the_race_now_and_then(copy: Tree) -> None:
    assert 1 <= int(copy.run("-c", PRIORITIES).stdout) <= 50
    assert int(Tree(copy.folder.parent / "plain").run("-c", PRIORITIES).stdout) == 0
