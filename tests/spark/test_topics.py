"""The topic of a write is created where the option `createTopic` asks for it. Needs no pyspark."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._coordinators import prepared
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._topics import create_missing_topic
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(2, topics={"there": 1}, auto_create_topics=False) as cluster:
        yield cluster


def options(cluster: ThreadedFakeCluster, topic: str, shape: str | None) -> SinkOptions:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    return SinkOptions.parse(given if shape is None else {**given, "createTopic": shape})


@pytest.mark.parametrize("shape, partitions", [("3:1", 3), ("4:2", 4), ("5", 5)])
def test_missing_topic_is_created_as_asked(cluster: ThreadedFakeCluster, shape: str, partitions: int) -> None:
    given = options(cluster, "orders", shape)
    create_missing_topic(given)
    prepared(given)
    assert cluster.records("orders", partitions - 1) == []
    with pytest.raises(LookupError):
        cluster.records("orders", partitions)


def test_topic_that_exists_stays_as_it_is(cluster: ThreadedFakeCluster) -> None:
    create_missing_topic(options(cluster, "there", "3:1"))
    with pytest.raises(LookupError):
        cluster.records("there", 1)


def test_topic_that_two_drivers_create_is_created_once(cluster: ThreadedFakeCluster) -> None:
    """The one that comes second finds it."""
    given = options(cluster, "orders", "3:1")
    with ThreadPoolExecutor(8) as drivers:
        for created in [drivers.submit(create_missing_topic, given) for _ in range(8)]:
            created.result(30)
    prepared(given)
    assert cluster.records("orders", 2) == []


def test_refusal_to_create_names_the_option(cluster: ThreadedFakeCluster) -> None:
    """As for more replicas than there are brokers."""
    with pytest.raises(
        ConfigurationError, match=r"^createTopic: topic 'orders' was not created: INVALID_REPL"
    ) as caught:
        create_missing_topic(options(cluster, "orders", "3:5"))
    assert caught.value.option == "createTopic"


def test_missing_topic_is_not_created_unasked(cluster: ThreadedFakeCluster) -> None:
    """The error has the command that creates it, and the option."""
    given = options(cluster, "orders", None)
    create_missing_topic(given)
    with pytest.raises(ConfigurationError, match=r"`aioproducer topic create orders --partitions N`, .*createTopic="):
        prepared(given)
