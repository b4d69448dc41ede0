"""Jars are fetched once, kept per user, and never seen half."""

import asyncio
from pathlib import Path

import pytest

from aioproducer.testing.kafka import BrokerStartError, MissingToolError
from aioproducer.testing.kafka.kafka_jars import cache_folder, kafka_jars

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

    folders = await asyncio.gather(*(kafka_jars("4.3.1") for _ in range(5)))

    assert set(folders) == {cache_folder() / "4.3.1"}
    assert [path.name for path in folders[0].iterdir()] == ["kafka_2.13-4.3.1.jar"]
    assert len(machine.maven_calls()) == 1
    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == ["4.3.1"]


@pytest.mark.parametrize("version, profiles", [("4.3.1", "-Pkafka-4"), ("3.9.1", "-Pkafka-3")])
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
        await kafka_jars("4.3.1")


async def test_cancelled_fetch_ends_maven(machine: Machine) -> None:
    machine.maven_does("exec sleep 30")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await kafka_jars("4.3.1")

    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("version", ["4", "2.8.0", "4.3.1; rm -rf /", "../4.3.1", ""])
async def test_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(BrokerStartError, match="unknown or unsupported Kafka version"):
        await kafka_jars(version)


async def test_missing_maven_is_one_line(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.programs))
    machine.install("java", JAVA.replace("/bin/sh", "/bin/sh"))

    with pytest.raises(MissingToolError) as raised:
        await kafka_jars("4.3.1")

    assert [line.split(":")[1] for line in raised.value.missing] == [" sudo apt-get install -y maven"]
