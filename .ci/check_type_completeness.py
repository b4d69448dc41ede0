"""Lists public names whose type checkers may infer differently, by `basedpyright --verifytypes`.

That tool treats every module without an underscore as public. Here only the names in `__all__` are, with their base
classes and members. Runs in the environment of the nox session `types`; exits with 1 if there is such a name.
"""

import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["aioproducer", "aioproducer.testing.kafka", "aioproducer.compat", "aioproducer.testing"]
INSIDE = {"aioproducer.testing.fake_cluster.FakeCluster.model"}
"""Used by tests of this project, without any promise."""


class Diagnostic(TypedDict):
    """A problem of a symbol."""

    message: str


class Symbol(TypedDict):
    """A symbol in the report."""

    name: str
    isTypeKnown: bool
    isTypeAmbiguous: bool
    diagnostics: list[Diagnostic]


def main() -> int:
    """Print incomplete symbols, and return the exit code."""
    public = tuple(sorted(public_names()))
    seen = [symbol for symbol in report() if is_within(symbol["name"], public)]
    incomplete = [symbol for symbol in seen if symbol["diagnostics"] and not is_complete(symbol)]
    for symbol in incomplete:
        print(symbol["name"], *(each["message"] for each in symbol["diagnostics"]), sep="\n    ")
    print(f"{len(seen)} public symbols, {len(incomplete)} without a complete type")
    return 1 if incomplete or not seen else 0


def public_names() -> Iterator[str]:
    """Yield the definition of each public name, and of its base classes."""
    for module in map(importlib.import_module, MODULES):
        for value in (getattr(module, name) for name in module.__all__):
            for definition in inspect.getmro(value) if inspect.isclass(value) else (value,):
                yield f"{getattr(definition, '__module__', module.__name__)}.{getattr(definition, '__qualname__', '')}"


def report() -> list[Symbol]:
    """Return the checker's report on every symbol; it finds the package by PYTHONPATH."""
    command = ["basedpyright", "--verifytypes", "aioproducer", "--ignoreexternal", "--outputjson"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603  # ours
    found: list[Symbol] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    return found


def is_within(name: str, public: tuple[str, ...]) -> bool:
    """Return whether a name is public, or a member of a public name, and not in `INSIDE`."""
    return name not in INSIDE and any(name == each or name.startswith(f"{each}.") for each in public)


def is_complete(symbol: Symbol) -> bool:
    """Return whether every checker infers the same type."""
    return symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]


if __name__ == "__main__":
    sys.exit(main())
