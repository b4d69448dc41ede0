"""Apicurio Registry from Maven Central, in memory on a free port, and Java's deserializers that ask it."""

import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from aioproducer.testing.kafka.cache import cache_folder, cache_lock
from aioproducer.testing.kafka.prerequisites import java_major_version, java_program
from aioproducer.testing.kafka.programs import SMALL_HEAP, BrokerStartError, JavaProcess, MissingToolError, run_program
from aioproducer.testing.kafka.server_properties import free_ports

HERE: Final = Path(__file__).parent
RELEASE: Final = "3.3.3"
JAVA_MINIMUM: Final = 21
"""Oldest Java that runs it. Of 3.0.9, which Java 17 runs, Maven Central lacks the parent, so that Maven refuses it."""
_READY_S: Final = 120.0
_POLL_S: Final = 0.1


def newest_java() -> str:
    """Return the path of the machine's newest Java.

    Raises:
        MissingToolError: it does not run the registry.
    """
    programs = {java_program(), *map(str, Path("/usr/lib/jvm").glob("*/bin/java"))} - {None}
    version, path = max(((java_major_version(str(each)), str(each)) for each in programs), default=(0, ""))
    if version < JAVA_MINIMUM:
        raise MissingToolError([f"Java {JAVA_MINIMUM} or newer is missing: a real schema registry needs it"])
    return path


async def registry_folder() -> Path:
    """Return the folder with the registry's program and the jars of Java's deserializers; fetched once.

    Raises:
        MissingToolError: Maven is not on this machine, or does not get them.
    """
    target = cache_folder() / f"apicurio-{RELEASE}"
    async with cache_lock(target.name):
        if not target.exists():
            if shutil.which("mvn") is None:
                raise MissingToolError(["Maven is missing: it fetches a real schema registry"])
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                await _fetch(Path(scratch) / "made")
                (Path(scratch) / "made").rename(target)
    return target


async def _fetch(folder: Path) -> None:
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(HERE / "pom.xml"), f"-Dregistry.version={RELEASE}"]
    try:
        await run_program([*command, "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"])
    except BrokerStartError as error:
        raise MissingToolError([f"Maven does not get Apicurio Registry {RELEASE}: {str(error)[:500]}"]) from error
    [archive] = (folder / "jars").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # Python 3.11.2, Debian's, has neither the filter nor the argument that names it.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        packed.extractall(folder / "app")
    archive.unlink()


class RealRegistry:
    """A registry that runs.

    Args:
        folder: of `registry_folder`.
        java: path of the program.
        log_file: what it logs.
    """

    def __init__(self, folder: Path, java: str, log_file: Path) -> None:
        port, of_management = free_ports(2)
        self._folder = folder
        self._root = f"http://127.0.0.1:{port}"
        self.url: Final = f"{self._root}/apis/ccompat/v7"
        """Of the API that Confluent's clients speak."""
        program = folder / "app" / "quarkus-run.jar"
        at = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
        at += [f"-Dquarkus.management.port={of_management}", "-Dquarkus.management.host=127.0.0.1"]
        self._java = java
        self._process = JavaProcess([java, *SMALL_HEAP, *at, "-jar", str(program)], log_file)

    def wait_until_ready(self) -> None:
        """Return once it answers.

        Raises:
            BrokerStartError: it ended, or does not answer.
        """
        until = time.monotonic() + _READY_S
        while not self._answers():
            if not self._process.is_running or time.monotonic() > until:
                raise BrokerStartError(f"the registry does not start:\n{self._process.log_tail()}")
            time.sleep(_POLL_S)

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema as given, and return its id."""
        body = json.dumps({"schema": text, "schemaType": kind}).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(f"{self.url}/subjects/{subject}/versions", body, headers)  # http
        with urllib.request.urlopen(request) as response:
            return int(json.load(response)["id"])

    def read_by_java(self, *records: tuple[str, bytes]) -> list[str]:
        """Return what Java's deserializers read of (kind of schema, record), as they print it."""
        command = [self._java, "-XX:TieredStopAtLevel=1", "-cp", f"{self._folder}/jars/*", str(HERE / "Decode.java")]
        command += [f"{self._root}/apis/registry/v2", *(f"{kind}:{record.hex()}" for kind, record in records)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_READY_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def stop(self) -> None:
        """End it."""
        self._process.kill_now()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as response:  # http
                return bool(response.status == 200)  # OK
        except (urllib.error.URLError, OSError):
            return False
