"""A temporary folder that a killed process does not leave behind for good.

The owner holds a lock on a file in it; the system drops the lock when the owner dies, however it dies. Who makes the
next folder removes those that nobody holds any more.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path

PREFIX = "aioproducer-kafka-"
LOCK_FILE = ".owner"


class WorkingFolder:
    """A temporary folder, removed by `remove` or, if this process dies first, by the next one made."""

    def __init__(self) -> None:
        """Make the folder, after removing the orphans."""
        _remove_orphans()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        being_made = self.path / f"{LOCK_FILE}.new"
        self._lock = being_made.open("w", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        being_made.rename(self.path / LOCK_FILE)  # only a locked one is ever seen under its name

    def remove(self) -> None:
        """Remove it with all that is in it; doing so again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_orphans() -> None:
    """Remove the folders of processes that died; those of other users are left alone."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK_FILE}"):
        try:
            with lock_file.open("r+", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_file.parent, ignore_errors=True)
        except OSError:
            continue  # its owner lives, or it is not ours
