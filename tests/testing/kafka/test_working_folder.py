"""Temporary folders do not outlive their owners for long."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aioproducer.testing.kafka.folders import PREFIX, WorkingFolder

OWNER_THAT_DIES = """
import os
from aioproducer.testing.kafka.folders import WorkingFolder
print(WorkingFolder().path, flush=True)
os._exit(1)
"""


@pytest.fixture(autouse=True)
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create folders below a temporary root, here and in child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_removed_folder_is_gone() -> None:
    folder = WorkingFolder()
    (folder.path / "file").write_text("x", "utf-8")

    folder.remove()
    folder.remove()

    assert not folder.path.exists()


def test_folder_of_a_dead_process_is_removed_by_the_next() -> None:
    mine = WorkingFolder()
    child = subprocess.run([sys.executable, "-c", OWNER_THAT_DIES], capture_output=True, text=True, check=False)
    orphan = Path(child.stdout.strip())
    assert orphan.name.startswith(PREFIX)
    assert orphan.exists()

    next_one = WorkingFolder()

    assert not orphan.exists()
    assert mine.path.exists()
    mine.remove()
    next_one.remove()
