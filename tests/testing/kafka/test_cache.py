"""Jars, formatted log folders and archives of classes are made once, kept per user, and never seen half."""

import asyncio
import re
from pathlib import Path

import psutil
import pytest

from aioproducer.testing.kafka import BrokerStartError, KafkaCluster, MissingToolError
from aioproducer.testing.kafka.cache import cache_folder, class_archive_options, copy_log_folder, kafka_jars, new_uuid

MAVEN = """\
#!/bin/sh
echo "$@" >> "{log}"
for word in "$@"; do case "$word" in
    -DoutputDirectory=*) folder="${{word#*=}}" ;;
    -Dkafka.version=*) version="${{word#*=}}" ;;
esac; done
{act}
"""
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"


class Machine:
    """A PATH with a fake Java and Maven, and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.log = folder / "maven.log"
        self.install("java", JAVA)

    def install(self, name: str, script: str) -> None:
        (self.programs / name).write_text(script, "utf-8")
        (self.programs / name).chmod(0o755)

    def maven_does(self, act: str) -> None:
        self.install("mvn", MAVEN.format(log=self.log, act=act))

    def maven_calls(self) -> list[str]:
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{machine.programs}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return machine


async def test_jars_are_fetched_once(machine: Machine) -> None:
    machine.maven_does('sleep 0.05; touch "$folder/kafka_2.13-$version.jar"')

    folders = await asyncio.gather(*(kafka_jars("4.4.0") for _ in range(5)))

    assert set(folders) == {cache_folder() / "4.4.0"}
    assert [path.name for path in folders[0].iterdir()] == ["kafka_2.13-4.4.0.jar"]
    assert len(machine.maven_calls()) == 1
    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == ["4.4.0"]


@pytest.mark.parametrize("version, profiles", [("4.4.0", "-Pkafka-4"), ("3.9.1", "-Pkafka-3")])
async def test_each_major_version_has_its_logger(machine: Machine, version: str, profiles: str) -> None:
    machine.maven_does('touch "$folder/kafka_2.13-$version.jar"')

    await kafka_jars(version)

    assert profiles in machine.maven_calls()[0].split()


async def test_failing_maven_leaves_nothing_and_says_why(machine: Machine) -> None:
    says = r"[ERROR] no such artifact\n[ERROR] \n[ERROR] Re-run Maven using the -X switch"
    machine.maven_does(f'touch "$folder/half.jar"; printf "{says}"; exit 1')

    with pytest.raises(BrokerStartError, match=r"could not fetch Kafka 4\.9\.9.*\n.*no such artifact$"):
        await kafka_jars("4.9.9")

    assert "-Dstyle.color=never" in machine.maven_calls()[0].split()
    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == []


async def test_cache_that_cannot_be_written_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.maven_does("exit 1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.programs / "java"))

    says = "/java/aioproducer/kafka, cannot be written to: Not a directory; .* XDG_CACHE_HOME"
    with pytest.raises(BrokerStartError, match=says):
        await kafka_jars("4.4.0")


async def test_cancelled_fetch_ends_maven(machine: Machine) -> None:
    machine.maven_does("exec sleep 30")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await kafka_jars("4.4.0")

    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("version", ["4", "2.8.0", "4.4.0; rm -rf /", "../4.4.0", ""])
async def test_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(BrokerStartError, match="unknown or unsupported Kafka version"):
        await kafka_jars(version)


async def test_missing_maven_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.programs))
    machine.install("java", JAVA.replace("/bin/sh", "/bin/sh"))

    with pytest.raises(MissingToolError) as raised:
        await kafka_jars("4.4.0")

    assert [line.split(":")[1] for line in raised.value.missing] == [" sudo apt-get install -y maven"]


META = "#\n#Sat Nov 21 18:00:00 UTC 2026\nnode.id=1\ndirectory.id=abc\nversion=1\ncluster.id=def\n"


def test_copy_has_the_identity_of_its_node(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "meta.properties").write_text(META, "utf-8")
    (template / "bootstrap.checkpoint").write_bytes(b"\x00\x01")

    copy_log_folder(template, tmp_path / "copy", cluster_id="cluster", node_id=3)

    meta = dict(line.split("=") for line in (tmp_path / "copy" / "meta.properties").read_text("utf-8").splitlines())
    assert meta | {"directory.id": ""} == {"node.id": "3", "cluster.id": "cluster", "version": "1", "directory.id": ""}
    assert meta["directory.id"] != "abc"
    assert (tmp_path / "copy" / "bootstrap.checkpoint").read_bytes() == b"\x00\x01"


def test_new_uuid_is_as_kafka_writes_them() -> None:
    uuids = {new_uuid() for _ in range(1_000)}

    assert len(uuids) == 1_000
    assert all(re.fullmatch(r"[A-Za-z0-9_]{22}", uuid) for uuid in uuids)


VERSION = "4.4.0"
ARCHIVE = f"{VERSION}-classes.jsa"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    return cache_folder()


@pytest.mark.kafka
async def test_broker_maps_the_archive(kafka_440: KafkaCluster) -> None:
    """The JVM has found it fit for use, and says nothing."""
    mapped = [each.path for each in psutil.Process(kafka_440.node(1).process_id).memory_maps()]

    assert str(cache_folder() / ARCHIVE) in mapped
    assert "cds" not in kafka_440.node(1).log_tail(10_000)


@pytest.mark.kafka
async def test_archive_that_is_of_no_use_is_not_used(
    kafka_440: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive may be of a Java that was replaced."""
    del kafka_440  # has filled the cache
    filled = cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    for name in (VERSION, f"{VERSION}-formatted"):
        (cache_folder() / name).symlink_to(filled / name)
    (cache_folder() / ARCHIVE).write_bytes(b"of another Java")

    async with KafkaCluster(VERSION) as cluster:
        assert cluster.node(1).is_running


@pytest.mark.kafka  # needs Java
async def test_archive_that_cannot_be_made_is_tried_once(empty_cache: Path) -> None:
    """The broker that should make it does not start: there are no jars."""
    template = empty_cache / "template"
    template.mkdir()
    (template / "meta.properties").touch()

    for _ in range(2):
        assert await class_archive_options(empty_cache / VERSION, template) == ()
        template = Path("not looked at again")


async def test_archive_that_is_there_is_named(empty_cache: Path) -> None:
    """A JVM that does not know such archives ignores the option."""
    (empty_cache / ARCHIVE).write_bytes(b"...")

    options = await class_archive_options(empty_cache / VERSION, Path("not looked at"))

    assert options == ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:SharedArchiveFile={empty_cache / ARCHIVE}")
