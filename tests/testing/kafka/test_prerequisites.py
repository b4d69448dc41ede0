"""The lines that say what a machine lacks for real Kafka."""

from pathlib import Path

import pytest

from aioproducer.testing.kafka.prerequisites import java_major_version, missing_for_kafka


def program(path: Path, says: str = "") -> str:
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "says, expected",
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("something else", 0),
    ],
    ids=["17", "21", "8", "unknown"],
)
def test_java_major_version_is_read(tmp_path: Path, says: str, expected: int) -> None:
    java = program(tmp_path / "java", says)

    assert java_major_version(java) == expected


def test_java_major_version_is_zero_when_it_does_not_run(tmp_path: Path) -> None:
    assert java_major_version(str(tmp_path / "absent")) == 0


@pytest.mark.usefixtures("bare_machine")
def test_missing_for_kafka_names_java_and_maven() -> None:
    java, maven = missing_for_kafka()

    assert "Java 17 is missing" in java
    assert "apt-get install -y openjdk-17-jre-headless" in java
    assert "Maven is missing" in maven
    assert "apt-get install -y maven" in maven


def test_missing_for_kafka_refuses_an_old_java(bare_machine: Path) -> None:
    """Kafka 4 brokers do not start on Java 11."""
    program(bare_machine / "java", 'openjdk version "11.0.20"')
    program(bare_machine / "mvn")

    assert ["Java 11 is too old" in line for line in missing_for_kafka()] == [True]


def test_missing_for_kafka_needs_no_maven_for_cached_jars(bare_machine: Path) -> None:
    """Maven only fetches the jars."""
    program(bare_machine / "java", 'openjdk version "17.0.1"')

    assert missing_for_kafka(jars_cached=True) == []


def test_java_home_wins_over_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare_machine / "java", 'openjdk version "11.0.20"')
    program(bare_machine / "mvn")
    home = bare_machine / "jdk"
    (home / "bin").mkdir(parents=True)
    program(home / "bin" / "java", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert missing_for_kafka() == []
