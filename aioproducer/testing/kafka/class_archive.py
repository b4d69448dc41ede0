"""A class-data archive: the classes that a broker has loaded by the time it is ready, as the JVM maps them from a file.

A broker that starts with it needs three fifths of the processor time (measured on 4.3.1: 2.8 s instead of 4.7). A
broker that is started for nothing else makes it, once a version. It is a matter of speed alone: a JVM that cannot make
one, or cannot use one, another Java's for example, starts without.

Source: JEP 350, Dynamic CDS Archives.
"""

import asyncio
import signal
import tempfile
from pathlib import Path

from aioproducer.testing.kafka.errors import BrokerStartError
from aioproducer.testing.kafka.folders import copy_log_folder, new_uuid
from aioproducer.testing.kafka.java_process import SMALL_HEAP
from aioproducer.testing.kafka.kafka_jars import cache_folder, cache_lock
from aioproducer.testing.kafka.kafka_node import KafkaNode, NodeProgram
from aioproducer.testing.kafka.server_properties import NodePorts, free_ports, properties_text, server_properties

ONLY_WHERE_KNOWN = "-XX:+IgnoreUnrecognizedVMOptions"
"""A JVM of another make has no such archives, and must start all the same."""

MAKING_S = 60.0  # how long the broker may take that makes it


async def class_archive_options(jars: Path, template: Path) -> tuple[str, ...]:
    """JVM options that make a broker with the heap `SMALL_HEAP` start from the archive; none if there cannot be one."""
    archive = cache_folder() / f"{jars.name}-classes.jsa"
    if not archive.exists():
        await _make_once(archive, jars, template)
    return (ONLY_WHERE_KNOWN, f"-XX:SharedArchiveFile={archive}") if archive.stat().st_size else ()


async def _make_once(archive: Path, jars: Path, template: Path) -> None:
    """Make it, unless another process did while we waited for the lock; an empty file says that it cannot be made."""
    async with cache_lock(archive.name):
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(prefix=f".{archive.name}-", dir=archive.parent) as scratch:
            arriving = Path(scratch, archive.name)
            options = (*SMALL_HEAP, ONLY_WHERE_KNOWN, f"-XX:ArchiveClassesAtExit={arriving}")
            try:
                await _run_a_broker(Path(scratch), template, NodeProgram(jars, options))
            except (BrokerStartError, TimeoutError):
                arriving.unlink(missing_ok=True)  # a JVM that fails writes one too, of the little it has loaded
            arriving.touch()
            arriving.rename(archive)


async def _run_a_broker(folder: Path, template: Path, program: NodeProgram) -> None:
    """Start one in `folder`, and end it once it is ready; the JVM writes the archive as it ends."""
    broker_port, controller_port = free_ports(2)
    ports = NodePorts(node_id=1, broker_port=broker_port, controller_port=controller_port)
    copy_log_folder(template, folder / "log", cluster_id=new_uuid(), node_id=ports.node_id)
    settings = properties_text(server_properties(ports, [ports], folder / "log"))
    (folder / "server.properties").write_text(settings, "utf-8")
    node = KafkaNode(ports, folder, program)
    node.launch()
    try:
        async with asyncio.timeout(MAKING_S):
            await node.wait_until_ready(1)
            await node.kill(signal.SIGTERM)
    finally:
        node.kill_now()
