"""Command lines for child processes that run modules of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import aioproducer

PACKAGE_ROOT: Final = str(Path(aioproducer.__file__).parent.parent)
"""Folder that holds the package. It comes last on a child's path: it is needed where the package is not installed, and
no other file in it must hide a module of Python or of a dependency."""

_RUN: Final = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
"""What `-m` does."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package in a fresh interpreter.

    As `python -m module`, but nothing is imported from the current folder (`-P`): a `random.py` there would be executed
    in place of Python's own. `PYTHONPATH` and editable installs work as in this process.

    Args:
        module: full name.
        arguments: `sys.argv[1:]` of the module.
    """
    return [sys.executable, "-P", "-c", _RUN, PACKAGE_ROOT, module, *arguments]
