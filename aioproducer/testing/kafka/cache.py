"""The user's cache of what a start of real Kafka needs: jars, a formatted log folder, an archive of loaded classes.

    ~/.cache/aioproducer/kafka/4.4.0/*.jar            (macOS: ~/Library/Caches; XDG_CACHE_HOME wins everywhere)
                               4.4.0-formatted/       by Kafka's StorageTool, which costs the start of a JVM
                               4.4.0-classes.jsa      what a broker has loaded by the time it is ready

Each is complete under its name: it is made beside it and renamed into place, under a lock per name, so that two
processes neither make it twice nor see half of it.
"""

import asyncio
import base64
import contextlib
import fcntl
import importlib.resources
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TextIO

from aioproducer.testing.kafka.kafka_node import KafkaNode, NodeProgram
from aioproducer.testing.kafka.prerequisites import missing_for_kafka
from aioproducer.testing.kafka.programs import SMALL_HEAP, BrokerStartError, MissingToolError, java_command, run_program
from aioproducer.testing.kafka.server_properties import NodePorts, free_ports, properties_text, server_properties

TESTED_VERSIONS = ("4.4.0", "3.9.1")
"""Versions the test suite runs on, newest first. Others of Kafka 3.9 and 4.x are fetched and tried as well."""

LOCK_POLL_S = 0.1  # how often a waiting process checks whether the lock is free
MAVEN_TIMEOUT_S = 600.0  # how long Maven may take to fetch about 45 MB before it is given up
VERSION_PATTERN = re.compile(r"(?P<major>[34])\.\d+\.\d+(-rc\d+)?")

TEMPLATE_NODE = NodePorts(node_id=1, broker_port=1, controller_port=2)
"""Whom the cached folder is formatted for; formatting opens no port."""

ONLY_WHERE_KNOWN = "-XX:+IgnoreUnrecognizedVMOptions"
"""A JVM of another make has no such archives, and must start all the same."""

MAKING_S = 60.0  # how long the broker may take that makes it


async def kafka_jars(version: str, *, tools: bool = False) -> Path:
    """The folder with every jar of a Kafka broker's class path, fetched through Maven if it is not cached.

    Args:
        version: an Apache Kafka release, "4.4.0".
        tools: with Kafka's own command line tools, such as its load generator (twice as many jars).

    Raises:
        BrokerStartError: no such version, or Maven could not fetch it; ends with Maven's own first lines.
        MissingToolError: Java or Maven is not on this machine.
    """
    require_kafka_prerequisites(version, tools=tools)
    folder = _folder_of(version, tools=tools)
    if not folder.is_dir():
        await _make_once(folder, partial(_run_maven, version, tools=tools))
    return folder


def require_kafka_prerequisites(version: str, *, tools: bool = False) -> None:
    """Do nothing where this machine can run `version` of Kafka."""
    if VERSION_PATTERN.fullmatch(version) is None:
        tested = " and ".join(TESTED_VERSIONS)
        raise BrokerStartError(f"unknown or unsupported Kafka version {version!r}; tested are {tested}")
    missing = missing_for_kafka(jars_cached=_folder_of(version, tools=tools).is_dir())
    if missing:
        raise MissingToolError(missing)


def cache_folder() -> Path:
    """The folder of this user's jars and formatted log folders; safe to delete at any time nothing runs."""
    if "XDG_CACHE_HOME" in os.environ:
        root = Path(os.environ["XDG_CACHE_HOME"])
    else:
        root = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return root / "aioproducer" / "kafka"


@contextlib.asynccontextmanager
async def cache_lock(name: str) -> AsyncIterator[None]:
    """Hold the lock `name` of the cache against other processes and tasks; the system drops it when we die."""
    with _lock_file(name) as lock:
        while not _is_locked_by_us(lock):  # noqa: ASYNC110 - the other holder may be another process
            await asyncio.sleep(LOCK_POLL_S)
        yield


def _lock_file(name: str) -> TextIO:
    """The file that is locked, open; and with it the cache's folder."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        return Path(cache_folder(), f".{name}.lock").open("w", encoding="utf-8")
    except OSError as error:
        raise BrokerStartError(
            f"the cache of Kafka's jars, {cache_folder()}, cannot be written to: {error.strerror or error}; "
            "the environment variable XDG_CACHE_HOME takes it elsewhere"
        ) from error


def _is_locked_by_us(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder_of(version: str, *, tools: bool) -> Path:
    return cache_folder() / (f"{version}-tools" if tools else version)


async def _make_once(target: Path, make: Callable[[Path], Awaitable[Path]]) -> None:
    """Rename what `make` makes in a folder into place, unless another process did while we waited for the lock."""
    async with cache_lock(target.name):
        if not target.exists():
            with tempfile.TemporaryDirectory(
                prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
            ) as scratch:
                (await make(Path(scratch))).rename(target)


async def _run_maven(version: str, scratch: Path, *, tools: bool) -> Path:
    """Return a folder in which Maven has copied the broker's run-time class path."""
    folder = scratch / "jars"
    folder.mkdir()
    profiles = f"kafka-{version[0]}" + (",tools" if tools else "")
    pom = importlib.resources.files("aioproducer.testing.kafka") / "pom.xml"
    with importlib.resources.as_file(pom) as pom_file:
        command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom_file), f"-P{profiles}"]
        command += [f"-Dkafka.version={version}", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        try:
            async with asyncio.timeout(MAVEN_TIMEOUT_S):
                await run_program(command)
        except TimeoutError as late:
            raise BrokerStartError(f"Maven did not fetch Kafka {version} in {MAVEN_TIMEOUT_S:.0f} s") from late
        except BrokerStartError as failed:
            said = str(failed).partition("\n[ERROR] \n")[0]  # behind it come its own options and a link
            raise BrokerStartError(f"Maven could not fetch Kafka {version}: {said}") from failed
    if not (folder / f"kafka_2.13-{version}.jar").exists():
        raise BrokerStartError(f"Maven fetched something, but no kafka_2.13-{version}.jar")
    return folder


def new_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64 without padding, never starting with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "0")


async def formatted_log_folder(jars: Path, features: Mapping[str, int]) -> Path:
    """The cached folder, formatted by the StorageTool of the version in `jars`; copy it, never start on it."""
    levels = "".join(f"-{name}-{level}" for name, level in sorted(features.items()))
    template = cache_folder() / f"{jars.name}-formatted{levels}"
    if not template.is_dir():
        await _make_once(template, partial(_formatted, jars, features))
    return template


def copy_log_folder(template: Path, folder: Path, *, cluster_id: str, node_id: int) -> None:
    """Copy it for one node: nodes differ only in three lines of `meta.properties`."""
    shutil.copytree(template, folder)
    meta = folder / "meta.properties"
    ours = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_uuid()}
    written = dict(line.split("=", 1) for line in meta.read_text("utf-8").splitlines() if "=" in line)
    meta.write_text(properties_text(written | ours), "utf-8")


async def _formatted(jars: Path, features: Mapping[str, int], scratch: Path) -> Path:
    formatted, settings = scratch / "log", scratch / "server.properties"
    settings.write_text(properties_text(server_properties(TEMPLATE_NODE, [TEMPLATE_NODE], formatted)), "utf-8")
    arguments = ["format", "-t", new_uuid(), "-c", str(settings)]
    arguments += [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    await run_program(java_command(jars, "kafka.tools.StorageTool", arguments))
    return formatted


async def class_archive_options(jars: Path, template: Path) -> tuple[str, ...]:
    """JVM options with which a broker of `SMALL_HEAP` maps its classes from a file; none if there cannot be one.

    A broker then needs three fifths of the processor time to start (measured on 4.4.0: 2.8 s instead of 4.7). A JVM
    that cannot make the archive, or cannot use it, another Java's for example, starts without.

    Source: JEP 350, Dynamic CDS Archives.
    """
    archive = cache_folder() / f"{jars.name}-classes.jsa"
    if not archive.exists():
        await _make_once(archive, partial(_class_archive, jars, template))
    return (ONLY_WHERE_KNOWN, f"-XX:SharedArchiveFile={archive}") if archive.stat().st_size else ()


async def _class_archive(jars: Path, template: Path, scratch: Path) -> Path:
    """Return the archive; an empty file says that it cannot be made."""
    archive = scratch / "classes.jsa"
    options = (*SMALL_HEAP, ONLY_WHERE_KNOWN, f"-XX:ArchiveClassesAtExit={archive}")
    try:
        await _run_a_broker(scratch, template, NodeProgram(jars, options))
    except (BrokerStartError, TimeoutError):
        archive.unlink(missing_ok=True)  # a JVM that fails writes one too, of the little it has loaded
    archive.touch()
    return archive


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
