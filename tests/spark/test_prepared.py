"""The driver looks topics up before any task; without a broker a write and a read end within 15 s."""

import importlib.util
from collections.abc import Iterator

import pytest

from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.spark._coordinators import prepared
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

ONCE = {"exactlyOnce": "true", "sinkId": "s"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"t": 1, "decisions": 3}, auto_create_topics=False) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "options, said",
    [
        ({"topic": "nowhere"}, "topic 'nowhere' does not exist"),
        ({"topic": "nowhere", **ONCE}, "topic 'nowhere' does not exist"),
        ({"topic": "nowhere", "decisionTopic": "decisions", **ONCE}, "topic 'nowhere' does not exist"),
        ({"topic": "t", "decisionTopic": "nowhere", **ONCE}, "decisionTopic 'nowhere' does not exist"),
        ({"decisionTopic": "nowhere", **ONCE}, "decisionTopic 'nowhere' does not exist"),
    ],
)
def test_topic_that_does_not_exist_is_named(cluster: ThreadedFakeCluster, options: dict[str, str], said: str) -> None:
    """With the option that names it."""
    with pytest.raises(ConfigurationError, match=f"^{said}") as caught:
        prepared(SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}))
    assert caught.value.option == said.partition(" ")[0]


@pytest.mark.parametrize("options", [{"topic": "t", "decisionTopic": "decisions"}, {"decisionTopic": "decisions"}])
def test_sink_is_prepared_where_all_topics_exist(cluster: ThreadedFakeCluster, options: dict[str, str]) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **ONCE, **options}
    preparation = prepared(SinkOptions.parse(given))
    assert preparation is not None
    assert preparation.last is None


NO_BROKER = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(15)
def test_write_without_a_broker_ends_soon() -> None:
    given = {**NO_BROKER, "topic": "t", "exactlyOnce": "true", "sinkId": "s"}
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        prepared(SinkOptions.parse(given))


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(15)
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: nox -s spark")
def test_read_without_a_broker_ends_soon() -> None:
    from aioproducer.spark._reader import KafkaReader  # noqa: PLC0415  # needs pyspark

    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        KafkaReader(SourceOptions.parse({**NO_BROKER, "subscribe": "t"}, is_stream=False)).partitions()
