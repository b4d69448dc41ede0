"""Says which public names have a type that checkers may understand differently, by `basedpyright --verifytypes`.

That counts every module as public whose name has no underscore. Here the public names are those of `__all__`, with
what they inherit and what their members are made of; a value that the package alone uses is inferred by mypy and that
is enough. Runs in the environment of the nox session `types`. Ends with 1 if there is such a name.
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
"""Public for the tests of this project: what a model of a broker is made of is no promise."""


class Diagnostic(TypedDict):
    """What is wrong with a symbol."""

    message: str


class Symbol(TypedDict):
    """One of the report."""

    name: str
    isTypeKnown: bool
    isTypeAmbiguous: bool
    diagnostics: list[Diagnostic]


def main() -> int:
    """Print what is incomplete and return the exit code."""
    public = tuple(sorted(public_names()))
    seen = [symbol for symbol in report() if is_within(symbol["name"], public)]
    incomplete = [symbol for symbol in seen if symbol["diagnostics"] and not is_complete(symbol)]
    for symbol in incomplete:
        print(symbol["name"], *(each["message"] for each in symbol["diagnostics"]), sep="\n    ")
    print(f"{len(seen)} public symbols, {len(incomplete)} without a complete type")
    return 1 if incomplete or not seen else 0


def public_names() -> Iterator[str]:
    """Where each public name is defined, and each class of ours that one inherits from."""
    for module in map(importlib.import_module, MODULES):
        for value in (getattr(module, name) for name in module.__all__):
            for definition in inspect.getmro(value) if inspect.isclass(value) else (value,):
                yield f"{getattr(definition, '__module__', module.__name__)}.{getattr(definition, '__qualname__', '')}"


def report() -> list[Symbol]:
    """What the checker says of every symbol; it finds the package by the path of the interpreter, not by an install."""
    command = ["basedpyright", "--verifytypes", "aioproducer", "--ignoreexternal", "--outputjson"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603  # ours
    found: list[Symbol] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    return found


def is_within(name: str, public: tuple[str, ...]) -> bool:
    """Whether it is one of them, or a member of one, and none of `INSIDE`."""
    return name not in INSIDE and any(name == each or name.startswith(f"{each}.") for each in public)


def is_complete(symbol: Symbol) -> bool:
    """Whether every checker sees the same type."""
    return symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]


if __name__ == "__main__":
    sys.exit(main())
