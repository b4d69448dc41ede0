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


def test_modules_are_not_garbage_collected_after_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a later task are not either; what else tasks create is."""
    (tmp_path / "imported_for_test.py").write_text("functions = [lambda: None for _ in range(1000)]")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with reused_worker():
            importlib.import_module("json")
        frozen = gc.get_freeze_count()
        assert frozen > len(gc.get_objects())
        with reused_worker():
            created = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        assert gc.get_freeze_count() <= frozen
        with reused_worker():
            importlib.import_module("imported_for_test")
        assert gc.get_freeze_count() >= frozen + 1000
        del created
    finally:
        gc.unfreeze()
