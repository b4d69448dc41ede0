"""Brokers start from an archive of classes where there is one, and start all the same where there is none."""

from pathlib import Path

import psutil
import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.class_archive import class_archive_options
from aioproducer.testing.kafka.kafka_jars import cache_folder

VERSION = "4.3.1"
ARCHIVE = f"{VERSION}-classes.jsa"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    return cache_folder()


@pytest.mark.kafka
async def test_broker_maps_the_archive(kafka_431: KafkaCluster) -> None:
    """The JVM has found it fit for use, and says nothing."""
    mapped = [each.path for each in psutil.Process(kafka_431.node(1).process_id).memory_maps()]

    assert str(cache_folder() / ARCHIVE) in mapped
    assert "cds" not in kafka_431.node(1).log_tail(10_000)


@pytest.mark.kafka
async def test_archive_that_is_of_no_use_is_not_used(
    kafka_431: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive may be of a Java that was replaced."""
    del kafka_431  # has filled the cache
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
