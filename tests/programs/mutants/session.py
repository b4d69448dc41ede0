"""Has every mutant killed, and says by what."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.programs.mutants.mutant import Mutant
from tests.programs.mutants.workshop import Finding, Tree
from tests.programs.simulation.families import FAMILIES

SIX = 6
SIX_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    mutant: Mutant
    finding: Finding
    seconds: float
    is_confirmed: bool = True  # the package itself does not fail in the same way

    @property
    def is_good(self) -> bool:
        return self.finding.is_kill and self.is_confirmed

    def line(self) -> str:
        what = self.finding.by or f"SURVIVED {self.finding.runs} runs"
        if not self.is_confirmed:
            what += " (NO KILL: the package itself fails there)"
        return f"{self.mutant.name:44} {what:52} {self.seconds:6.1f} s  {self.finding.violation:.110}"


class Session:
    """Some mutants, one after another.

    Args:
        mutants: which.
        folder: for the copies; empty.
        seeds: of each family, at most.
        seconds: of processor time for each mutant, at most; a test that has begun is finished.
        say: gets a line for each.
        runs_tests: whether tests that a mutant names run before the simulation.
    """

    def __init__(  # all by name
        self,
        mutants: Sequence[Mutant],
        folder: Path,
        *,
        seeds: int,
        seconds: float,
        say: Callable[[str], None],
        runs_tests: bool = True,
    ) -> None:
        self._mutants = mutants
        self._clean = Tree(folder / "clean")
        self._seeds = seeds
        self._seconds = seconds
        self._say = say
        self._runs_tests = runs_tests
        self.deaths: list[Death] = []

    def run(self) -> bool:
        self._clean.fill()
        for mutant in self._mutants:
            self.deaths.append(self._death(mutant))
            self._say(self.deaths[-1].line())
        return all(death.is_good for death in self.deaths)

    def _death(self, mutant: Mutant) -> Death:
        began = time.monotonic()
        tree = self._clean.mutated(mutant)
        finding = self._search(tree, mutant)
        tree.remove()
        seconds = time.monotonic() - began
        return Death(
            mutant=mutant, finding=finding, seconds=seconds, is_confirmed=not finding.is_kill or self._is_well(finding)
        )

    def _search(self, tree: Tree, mutant: Mutant) -> Finding:
        until = time.monotonic() + self._seconds
        finding = Finding(by="")
        if mutant.tests and self._runs_tests:
            finding = tree.test(mutant.tests)
        if not finding.is_kill and mutant.families:
            finding = tree.simulate(*mutant.families, seeds=self._seeds, seconds=self._seconds)
        left = until - time.monotonic()
        others = [name for name in FAMILIES if name not in mutant.families]
        if not finding.is_kill and left > 0:
            more = tree.simulate(*others, seeds=self._seeds, seconds=left)
            finding = Finding(by=more.by, violation=more.violation, runs=more.runs + finding.runs)
        return finding

    def _is_well(self, finding: Finding) -> bool:
        if "::" in finding.by:
            return not self._clean.test([f"tests/{finding.by}"]).is_kill
        run = finding.by.replace(" ", ":")
        return not self._clean.simulate(run, seeds=1, seconds=self._seconds).is_kill


def chosen_by(commit: str, mutants: Sequence[Mutant]) -> list[Mutant]:
    """Six of the mutants, chosen by a commit's hash: others with every commit, the same for one."""
    return random.Random(commit).sample(list(mutants), SIX)
