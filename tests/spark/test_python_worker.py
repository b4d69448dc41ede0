"""What Spark's Python worker keeps between tasks."""

import gc
import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from aioproducer.spark._python_worker import reused_worker


def test_archives_are_not_read_again_before_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has not been imported from them yet is still found."""
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for name in ("__init__", "first", "second"):
            archive.writestr(f"packed_for_test/{name}.py", "")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    with reused_worker():
        importlib.import_module("packed_for_test.first")
        assert any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    importlib.invalidate_caches()
    importlib.import_module("packed_for_test.second")


def test_modules_are_not_garbage_collected_after_each_task() -> None:
    """What later tasks create is."""
    with reused_worker():
        pass
    frozen = gc.get_freeze_count()
    assert frozen > len(gc.get_objects())
    with reused_worker():
        pass
    assert gc.get_freeze_count() <= frozen
    gc.unfreeze()
