"""Has every mutant killed, each in a copy of the package, and says by what."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aioproducer
from tests.programs.mutants.invariants import INVARIANTS
from tests.programs.mutants.mutant import Mutant, StaleMutantError
from tests.programs.mutants.published import PUBLISHED
from tests.programs.simulation.families import FAMILIES

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "aioproducer"
BUILT = Path(aioproducer.__file__).parent / "_native"
"""Folder of this interpreter's extension modules, built from the current sources."""

WITHOUT_BROKERS = "not kafka"
"""The tests that a mutant names run here; slow ones too, for a mutant may be why they are there."""

BUILD_ONE = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup

names = sys.argv[1:]
modules = [
    Extension(f"aioproducer._native.{name}", [f"aioproducer/_native/{name}.pyx"], extra_compile_args=["-O1"])
    for name in names
]
directives = {"boundscheck": False, "wraparound": False, "initializedcheck": False, "cdivision": True}
setup(
    name="mutant",
    packages=[],
    ext_modules=cythonize(modules, language_level=3, compiler_directives=directives),
    script_args=["-q", "build_ext", "--inplace"],
)
"""
"""Build the changed modules as setup.py does, and faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    by: str  # "D2 17", or the name of a test; empty: nothing was found
    violation: str = ""
    runs: int = 0

    @property
    def is_kill(self) -> bool:
        return bool(self.by)


class Tree:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        self.folder.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.so")
        shutil.copytree(PACKAGE, self.folder / "aioproducer", ignore=ignored)
        for module in BUILT.glob("*.so"):
            shutil.copy2(module, self.folder / "aioproducer" / "_native")
        shutil.copytree(ROOT / "tests", self.folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.folder)

    def mutated(self, mutant: Mutant) -> "Tree":
        tree = Tree(self.folder.parent / mutant.name)
        tree.folder.mkdir()
        shutil.copytree(self.folder / "aioproducer", tree.folder / "aioproducer")
        (tree.folder / "tests").symlink_to(self.folder / "tests")
        mutant.apply(tree.folder / "aioproducer")
        if modules := mutant.native_modules(tree.folder / "aioproducer"):
            built = tree.run("-c", BUILD_ONE, *modules)
            if built.returncode:
                raise StaleMutantError(f"{mutant.name} cannot be built:\n{built.stdout}{built.stderr}")
        shutil.copy(self.folder / "pyproject.toml", tree.folder)  # not while building: it would say what to build
        return tree

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def simulate(self, *runs: str, seeds: int, seconds: float) -> Finding:
        options = ("--seeds", str(seeds), "--seconds", str(seconds))
        done = self.run("-m", "tests.programs.mutants.gate", *runs, *options)
        lines = done.stdout.splitlines()
        if done.returncode == 0:
            found = json.loads(lines[-1])
            by = f"{found['family']} {found['seed']}" if "family" in found else ""
            return Finding(by=by, violation=found.get("violation", ""), runs=found["runs"])
        if done.returncode == -signal.SIGVTALRM:
            return Finding(by=lines[-1], violation="HANG: a run that never ends", runs=len(lines))
        if done.returncode < 0 and lines:
            return Finding(by=lines[-1], violation=f"CRASH: signal {-done.returncode}", runs=len(lines))
        raise RuntimeError(f"the gate did not run:\n{done.stderr[-2000:]}")

    def test(self, tests: Sequence[str]) -> Finding:
        """Run tests until the first that fails."""
        done = self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", WITHOUT_BROKERS, *tests)
        if done.returncode == 0:
            return Finding(by="")
        said = ("FAILED tests/", "ERROR tests/")  # and not what a log says
        failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(said)]
        if done.returncode != 1 or not failed:
            raise RuntimeError(f"the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return Finding(by=failed[0].split(" ", 1)[1].removeprefix("tests/"), violation="a test fails")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(self.folder)}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )


MUTANTS: Final[tuple[Mutant, ...]] = (*PUBLISHED, *INVARIANTS)


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
    """Some mutants, one after another, each in a copy of the package in an empty folder.

    Args:
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
