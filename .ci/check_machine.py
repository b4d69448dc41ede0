"""Prints what this machine lacks for the project, one line each, with the command that installs it.

The README's commands run it first, with the `python3` of the machine, so it uses only the standard library and syntax
of Python 3.6. Exits with 1 if the project cannot be built here. Java, Maven, MIT Kerberos and Chromium are optional:
without them the tests on real Kafka, with tickets, or of the inspector's page are skipped, and the exit code is 0.
"""

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import List, Optional

OLDEST_PYTHON = (3, 11)
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
PREREQUISITES = Path(__file__).resolve().parent.parent / "aioproducer" / "testing" / "kafka" / "prerequisites.py"


def main() -> int:
    """Print what is missing, and return the exit code."""
    needed = missing_for_build()
    for line in needed:
        print(line, file=sys.stderr)
    if needed:
        return 1
    prerequisites = load_prerequisites()
    for line in prerequisites.missing_for_kafka():
        print(f"{line}  (until then the tests on real Kafka are skipped)", file=sys.stderr)
    for line in prerequisites.missing_for_kerberos():
        print(f"{line}  (until then the tests with Kerberos are skipped)", file=sys.stderr)
    if not any(map(shutil.which, CHROMIUMS)):
        line = "Chromium is missing: sudo apt-get install -y chromium"
        print(f"{line}  (until then the tests of the inspector's page are skipped)", file=sys.stderr)
    return 0


def missing_for_build() -> List[str]:
    """Return what is missing to make a virtual environment and to compile the native modules."""
    if sys.version_info < OLDEST_PYTHON:
        install = "sudo apt-get install -y python3.11 python3.11-venv python3.11-dev"
        found = f"{sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}"
        return [f"Python 3.11 or newer is missing ({found}): {install}, and use python3.11 for python3"]
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    missing = []
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        missing.append(f"venv is missing: sudo apt-get install -y {python}-venv")
    if find_compiler() is None:
        missing.append("a C compiler is missing: sudo apt-get install -y gcc libc6-dev")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(f"the headers of {python} are missing: sudo apt-get install -y {python}-dev")
    return missing


def find_compiler() -> Optional[str]:
    """Return the path of the C compiler that setuptools uses, or None."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(shlex.split(command)[0])


def load_prerequisites() -> ModuleType:
    """Load the module that knows what real Kafka and Kerberos need from its file: nothing is installed yet."""
    spec = importlib.util.spec_from_file_location("prerequisites", str(PREREQUISITES))
    assert spec is not None
    assert spec.loader is not None
    prerequisites = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prerequisites)
    return prerequisites


if __name__ == "__main__":
    sys.exit(main())
