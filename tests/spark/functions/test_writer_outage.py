"""A write whose driver prepares it while no broker is there: one of a query that has written before waits."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from aioproducer.spark._columns import sink_columns
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._report import TaskCounts
from aioproducer.spark._writer import SinkMessage, SinkWriter
from aioproducer.testing import FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from tests.spark.functions.test_reader_outage import after_an_outage

ROUTES = {"plain": {}, "exactly once": {"exactlyOnce": "true", "sinkId": "s"}, "created": {"createTopic": "1:1"}}
OF_A_STREAM = SinkMessage(TaskCounts(), None, "stream q", 3)
OF_A_JOB = SinkMessage(TaskCounts(), None, "run r", None)


@pytest.fixture
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"t": 1, "u": 1}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark gives to a driver's processes; and less for the first contact than the outages here take."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    for module in ("_coordinators", "_topics"):
        monkeypatch.setattr(f"aioproducer.spark.{module}.FIRST_ANSWER_TIMEOUT_S", 0.5)


def writer(cluster: ThreadedFakeCluster, topic: str = "t", **options: str) -> SinkWriter:
    """Return the writer of a job, or of a function of `foreachBatch`: its driver's process knows no more."""
    given = SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **options})
    return SinkWriter(given, sink_columns(StructType().add("value", StringType()), given))


@pytest.mark.parametrize("route", ROUTES)
def test_write_of_a_running_query_waits_for_brokers(cluster: ThreadedFakeCluster, route: str) -> None:
    """Longer than the first contact; each write has a process of its own."""
    writer(cluster, **ROUTES[route]).commit([OF_A_STREAM])
    assert after_an_outage(cluster, lambda: pickle.dumps(writer(cluster, **ROUTES[route])))


@pytest.mark.parametrize("route", ROUTES)
def test_job_is_told_soon_that_no_broker_answers(cluster: ThreadedFakeCluster, route: str) -> None:
    """Also after another job, and beside a query that writes elsewhere."""
    writer(cluster, **ROUTES[route]).commit([OF_A_JOB])
    writer(cluster, "u", **ROUTES[route]).commit([OF_A_STREAM])
    cluster.kill(1)
    with pytest.raises(pickle.PickleError, match=r"no answer in 0.5 s"):
        pickle.dumps(writer(cluster, **ROUTES[route]))


def test_write_is_told_soon_where_spark_gives_no_folder(
    cluster: ThreadedFakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    writer(cluster).commit([OF_A_STREAM])
    cluster.kill(1)
    with pytest.raises(pickle.PickleError, match=r"no answer in 0.5 s"):
        pickle.dumps(writer(cluster))
