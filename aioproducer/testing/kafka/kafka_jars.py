"""The jars of an Apache Kafka version: fetched once through Maven, then kept in the user's cache.

    ~/.cache/aioproducer/kafka/4.3.1/*.jar            (macOS: ~/Library/Caches; XDG_CACHE_HOME wins everywhere)

A folder of that name is complete: Maven writes beside it and the folder is renamed into place at the end, under a
lock held per version, so that two processes neither fetch twice nor see half a class path.
"""

import asyncio
import contextlib
import fcntl
import importlib.resources
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TextIO

from aioproducer.testing.kafka.errors import BrokerStartError, MissingToolError
from aioproducer.testing.kafka.java_process import run_program
from aioproducer.testing.kafka.prerequisites import missing_for_kafka

TESTED_VERSIONS = ("4.3.1", "3.9.1")
"""Versions the test suite runs on, newest first. Others of Kafka 3.9 and 4.x are fetched and tried as well."""

LOCK_POLL_S = 0.1  # how often a waiting process checks whether the lock is free
MAVEN_TIMEOUT_S = 600.0  # how long Maven may take to fetch about 45 MB before it is given up
VERSION_PATTERN = re.compile(r"(?P<major>[34])\.\d+\.\d+(-rc\d+)?")


async def kafka_jars(version: str, *, tools: bool = False) -> Path:
    """The folder with every jar of a Kafka broker's class path, fetched through Maven if it is not cached.

    Args:
        version: an Apache Kafka release, "4.3.1".
        tools: with Kafka's own command line tools, such as its load generator (twice as many jars).

    Raises:
        BrokerStartError: no such version, or Maven could not fetch it; ends with Maven's own first lines.
        MissingToolError: Java or Maven is not on this machine.
    """
    require_kafka_prerequisites(version, tools=tools)
    folder = _folder_of(version, tools=tools)
    if not folder.is_dir():
        await _fetch_once(version, folder, tools=tools)
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


async def _fetch_once(version: str, folder: Path, *, tools: bool) -> None:
    """Fetch the jars into `folder`, unless another process did while we waited for the lock."""
    async with cache_lock(folder.name):
        if folder.is_dir():
            return
        arriving = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            await _run_maven(version, arriving, tools=tools)
            arriving.chmod(0o755)
            arriving.rename(folder)
        finally:
            shutil.rmtree(arriving, ignore_errors=True)


async def _run_maven(version: str, folder: Path, *, tools: bool) -> None:
    """Let Maven copy the broker's run-time class path into `folder`."""
    profiles = f"kafka-{version[0]}" + (",tools" if tools else "")
    pom = importlib.resources.files("aioproducer.testing.kafka") / "pom.xml"
    with importlib.resources.as_file(pom) as pom_file:
        command = [
            *(
                "mvn",
                "-q",
                "-B",
                "-Dstyle.color=never",
                "-f",
                str(pom_file),
                f"-P{profiles}",
                f"-Dkafka.version={version}",
            ),
            *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
        ]
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
