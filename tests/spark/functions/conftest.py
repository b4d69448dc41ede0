"""One Spark session for all tests of this folder, and topics on the embedded cluster and on real Kafka."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from aioproducer.spark import recommended_conf
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from tests.kafka_releases import FAKE

ROOT = Path(__file__).parents[3]
HAS_READ_LIMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Whether Spark says what limit a batch has; before, `availableNow` may read all in one."""
CORES = "local[2,4]"
"""Two tasks at a time, and each attempted four times."""


class Record(NamedTuple):
    """What a reader finds that is not ours."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes]]


class Topics:
    """Topics of one cluster.

    Args:
        servers: of the cluster.
        own: name for a topic of the test's own.
    """

    def __init__(self, servers: str, own: str) -> None:
        self.servers = servers
        self.own = own

    def create_own(self, partitions: int = 2) -> str:
        """Make a topic of the test's own, and return its name."""
        return self.create(self.own, partitions)

    def options(self, topic: str) -> dict[str, str]:
        """Return the options of a write to a topic."""
        return {"kafka.bootstrap.servers": self.servers, "topic": topic}

    def create(self, name: str, partitions: int = 2) -> str:
        """Make a topic, and return its name."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(20)
        return name

    def records(self, name: str) -> list[Record]:
        """Return what a `read_committed` consumer sees up to the end, partition after partition.

        The end is behind all records: brokers write the markers after they have answered a commit, and librdkafka
        reports the end of a partition at an open transaction too.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        partitions = consumer.list_topics(name, timeout=20).topics[name].partitions
        consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Record] = []
        ends = self._ends(name, list(partitions))
        at_end: set[int] = set()
        while len(at_end) < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "no end of the partition"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001  # its public constant
                at_end |= {message.partition()} if message.offset() >= ends[message.partition()] else set()
                continue
            headers = [(key, value) for key, value in message.headers() or []]
            found.append(Record(message.partition(), message.key(), message.value(), message.timestamp()[1], headers))
        consumer.close()
        return sorted(found, key=lambda record: record.partition)

    def _ends(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        settings = {"group.id": "reader", "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self.servers, **settings})
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(name, number), timeout=20)[1] for number in partitions
        }
        consumer.close()
        return ends

    def values(self, name: str) -> list[str]:
        """Return the values as sorted text."""
        return sorted((record.value or b"").decode() for record in self.records(name))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session, whose workers run this Python and this tree."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    session = (
        SparkSession.builder.master(CORES)
        .config(map=recommended_conf())
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")  # a busy machine is no defect
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def embedded() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own."""
    name = f"{request.path.stem}-{request.node.name}"
    return "".join(letter if letter.isalnum() else "-" for letter in name)


@pytest.fixture(params=[FAKE, pytest.param("4.4.0", marks=pytest.mark.kafka)])
def topics(request: pytest.FixtureRequest, topic: str) -> Topics:
    """Topics on each kind of cluster in turn."""
    name = "embedded" if request.param == FAKE else "kafka_440"
    return Topics(request.getfixturevalue(name).bootstrap_servers, topic)


@pytest.fixture
def embedded_topics(embedded: ThreadedFakeCluster, topic: str) -> Topics:
    """Topics on the embedded cluster alone."""
    return Topics(embedded.bootstrap_servers, topic)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let pyspark warn: its sockets and its pandas are not ours."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.slow)
