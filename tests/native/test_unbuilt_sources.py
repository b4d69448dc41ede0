"""The sources without their compiled modules, as in a clone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent


@pytest.mark.parametrize(
    "arguments",
    [["-c", "from aioproducer import Producer"], ["-m", "aioproducer", "broker"], ["-c", "import aioproducer.testing"]],
)
def test_unbuilt_sources_say_so(tmp_path: Path, arguments: list[str]) -> None:
    """The error says what to do; users do not know the missing module, which Python looks up in the folder first."""
    shutil.copytree(PACKAGE, tmp_path / "aioproducer", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))

    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: these are the sources of aioproducer, not built for this Python: run `pip ")
    assert str(tmp_path) in last
