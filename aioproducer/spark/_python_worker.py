"""The Python process of Spark in which tasks run, one after another.

Between two tasks Spark empties the caches of Python's import system and collects garbage. Both cost CPU time by what
the process has imported (together 0.1 s with PySpark, pyarrow and this package), which is more than a small task.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final
from zipimport import zipimporter


@contextmanager
def reused_worker() -> Iterator[None]:
    """Run a task in the block, and leave its process so that the next task begins quickly."""
    try:
        yield
    finally:
        _drop_archive_finders()
        _freeze_modules()


def _drop_archive_finders() -> None:
    """Remove the import system's finders of folders in archives; a later import makes them again.

    Up to Python 3.12, emptying the cache of such a finder reads the directory of the whole archive again; a process
    that has imported PySpark has 16 of them.
    """
    for path, finder in list(sys.path_importer_cache.items()):  # a copy: another thread may import meanwhile
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


_frozen: Final = SimpleNamespace(modules=0)  # how many there were


def _freeze_modules() -> None:
    """Exempt from garbage collection what is alive, if modules were imported since the last task: these stay."""
    if len(sys.modules) > _frozen.modules:
        gc.collect()  # what is garbage now would never be collected
        gc.freeze()
        _frozen.modules = len(sys.modules)
