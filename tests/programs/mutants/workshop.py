"""Copies of the package in which mutants live, and the programs that run in them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aioproducer
from tests.programs.mutants.mutant import Mutant, StaleMutantError

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
    """A folder with a copy of the package and of the tests."""

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
