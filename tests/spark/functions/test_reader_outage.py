"""A reader while no broker is there."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from pyspark.sql.datasource import InputPartition

from aioproducer import BlockingProducer
from aioproducer.errors import KafkaError
from aioproducer.spark._reader import KafkaStreamReader
from aioproducer.spark._source_options import SourceOptions
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster

START = {"t": {"0": 0}}
END = {"t": {"0": 3}}


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    """A cluster of one broker, whose topic has three records."""
    with FakeCluster.in_thread(1) as cluster:
        cluster.create_topic("t", 1)
        with BlockingProducer(cluster.bootstrap_servers) as producer:
            for row in range(3):
                producer.enqueue("t", str(row).encode())
            producer.flush()
        yield cluster


@pytest.fixture(autouse=True)
def short_first_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than the outages here."""
    monkeypatch.setattr("aioproducer.spark._cluster_offsets.FIRST_ANSWER_TIMEOUT_S", 0.5)


def reader(cluster: ThreadedFakeCluster, **options: str) -> KafkaStreamReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", **options}
    return KafkaStreamReader(SourceOptions.parse(given, is_stream=True))


def after_an_outage(cluster: ThreadedFakeCluster, ask: Callable[[], object]) -> object:
    """Return the answer to what is asked while no broker is there."""
    cluster.kill(1)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask)
        try:
            assert not wait([answer], timeout=2).done
        finally:
            cluster.restart(1)
        return answer.result(60)


def values(asked: KafkaStreamReader, partition: InputPartition) -> list[bytes]:
    return [value for batch in asked.read(partition) for value in batch.column("value").to_pylist()]


def test_running_query_waits_for_brokers(cluster: ThreadedFakeCluster) -> None:
    """Longer than the first contact."""
    asked = reader(cluster, startingOffsets="earliest")
    assert asked.initialOffset() == START
    assert after_an_outage(cluster, lambda: asked.latestOffset(START)) == END


def test_task_waits_for_brokers(cluster: ThreadedFakeCluster) -> None:
    """As long as for a record."""
    asked = reader(cluster)
    (partition,) = asked.partitions(START, END)
    assert after_an_outage(cluster, lambda: values(asked, partition)) == [b"0", b"1", b"2"]


def test_task_fails_after_its_poll_timeout(cluster: ThreadedFakeCluster) -> None:
    asked = reader(cluster, **{"kafkaConsumer.pollTimeoutMs": "1"})
    (partition,) = asked.partitions(START, END)
    cluster.kill(1)
    with pytest.raises(KafkaError, match=r"no broker answers .*kafkaConsumer.pollTimeoutMs"):
        values(asked, partition)


def test_new_query_is_told_soon(cluster: ThreadedFakeCluster) -> None:
    """Its address may be wrong."""
    cluster.kill(1)
    with pytest.raises(KafkaError, match=r"no answer in 0.5 s"):
        reader(cluster).initialOffset()
