"""The log folder of a node, formatted: Kafka's StorageTool runs once per version and features, later ones are copies.

Formatting costs the start of a JVM. What it writes differs between nodes only in three lines of `meta.properties`
(cluster, node and directory id), which a copy rewrites.

A temporary folder that a killed process does not leave behind for good.

The owner holds a lock on a file in it; the system drops the lock when the owner dies, however it dies. Who makes the
next folder removes those that no process holds any more.
"""

import base64
import fcntl
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from aioproducer.testing.kafka.java_process import java_command, run_program
from aioproducer.testing.kafka.kafka_jars import cache_folder, cache_lock
from aioproducer.testing.kafka.server_properties import NodePorts, properties_text, server_properties

TEMPLATE_NODE = NodePorts(node_id=1, broker_port=1, controller_port=2)
"""Whom the cached folder is formatted for; formatting opens no port."""


def new_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64 without padding, never starting with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "0")


async def formatted_log_folder(jars: Path, features: Mapping[str, int]) -> Path:
    """The cached folder, formatted by the StorageTool of the version in `jars`; copy it, never start on it."""
    levels = "".join(f"-{name}-{level}" for name, level in sorted(features.items()))
    template = cache_folder() / f"{jars.name}-formatted{levels}"
    if not template.is_dir():
        await _format_once(jars, template, features)
    return template


def copy_log_folder(template: Path, folder: Path, *, cluster_id: str, node_id: int) -> None:
    shutil.copytree(template, folder)
    meta = folder / "meta.properties"
    ours = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_uuid()}
    written = dict(line.split("=", 1) for line in meta.read_text("utf-8").splitlines() if "=" in line)
    meta.write_text(properties_text(written | ours), "utf-8")


async def _format_once(jars: Path, template: Path, features: Mapping[str, int]) -> None:
    """Format into `template`, unless another process did while we waited for the lock."""
    async with cache_lock(template.name):
        if template.is_dir():
            return
        with tempfile.TemporaryDirectory(prefix=f".{template.name}-", dir=template.parent) as scratch:
            formatted, settings = Path(scratch, "log"), Path(scratch, "server.properties")
            settings.write_text(properties_text(server_properties(TEMPLATE_NODE, [TEMPLATE_NODE], formatted)), "utf-8")
            arguments = ["format", "-t", new_uuid(), "-c", str(settings)]
            arguments += [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
            await run_program(java_command(jars, "kafka.tools.StorageTool", arguments))
            formatted.rename(template)


PREFIX = "aioproducer-kafka-"
LOCK_FILE = ".owner"


class WorkingFolder:
    """A temporary folder, removed by `remove` or, if this process dies first, by the next one made."""

    def __init__(self) -> None:
        _remove_orphans()
        self.path: Path = Path(tempfile.mkdtemp(prefix=PREFIX))
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
