"""Topics of a write are looked up on the driver, before any task."""

from collections.abc import Iterator

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._coordinators import prepared
from aioproducer.spark._options import SinkOptions
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
    assert preparation.last_batch is None
