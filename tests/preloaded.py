"""Libraries in C that a test preloads into a process of its own."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest


def compiled(source: Path, folder: Path) -> Path:
    """Compile a shared library; skip the test where there is no compiler."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}); install gcc")
    library = folder / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library
