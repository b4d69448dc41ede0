"""`aioproducer load --master`, as users run it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.spark._load_spark import default_conf, in_one_line
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.fake_cluster import ThreadedFakeCluster
from tests.cli.commands import PROGRAM
from tests.spark.functions.conftest import ROOT, Topics
from tests.spark.functions.test_tokens import PROVIDER

ROWS = 2_000
PATIENCE_S = 200.0


pytestmark = pytest.mark.timeout(600)  # two starts of Spark on a busy machine


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    file = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"value": [str(number) for number in range(ROWS)]}), file, row_group_size=200)
    return file


def started(orders: Path, topics: Topics, *arguments: str, path: object = ROOT) -> subprocess.Popen[str]:
    """Start the command; its errors are in a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYSPARK_PYTHON": sys.executable, "NO_COLOR": "1"}
    load = ["load", str(orders), "--topic", topics.own, "-b", topics.servers, "--master", "local[2,4]", *arguments]
    return subprocess.Popen([*PROGRAM, *load], env=environment, stderr=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> Sequence[str]:
    """Return the lines on standard error, once the command has ended."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    return [line for line in errors.splitlines() if line]


def test_interrupted_load_leaves_nothing(orders: Path, embedded: ThreadedFakeCluster, embedded_topics: Topics) -> None:
    """Ctrl-C while tasks send: one line, without the traces of py4j; the next load is not held up."""
    topic = embedded_topics.create_own(1)
    once = ("--exactly-once", "--sink", topic)
    with started(orders, embedded_topics, *once, "--rate", "100") as process:
        until = time.monotonic() + PATIENCE_S
        while embedded.end_offset(topic, 0) < 1:
            assert process.poll() is None, lines(process)
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = lines(process)
    assert said == [f"aioproducer: interrupted: the transaction is aborted, nothing of the input is visible in {topic}"]
    assert process.returncode == 128 + signal.SIGINT

    with started(orders, embedded_topics, *once, "--tasks", "3") as process:
        (line,) = lines(process)
    assert process.returncode == 0
    assert line.startswith(f"aioproducer: 2,000 records committed to {topic} in ")
    assert len(embedded_topics.values(topic)) == ROWS


EDITABLE = """
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        file = {{"aioproducer": "aioproducer/__init__.py", "pyspark_aioproducer": "pyspark_aioproducer.py"}}.get(name)
        return file and importlib.util.spec_from_file_location(name, f"{root}/{{file}}")
sys.meta_path.insert(0, Finder())
"""
"""What an editable install has: imports find the modules, and a walk over the folders of packages does not."""


def test_load_runs_from_an_editable_install(orders: Path, embedded_topics: Topics, tmp_path: Path) -> None:
    """Spark, which looks for the format in folders, does not find it then; the command registers it."""
    topic = embedded_topics.create_own(1)
    (tmp_path / "sitecustomize.py").write_text(EDITABLE.format(root=ROOT), "utf-8")

    with started(orders, embedded_topics, path=tmp_path) as process:
        (line,) = lines(process)

    assert line.startswith(f"aioproducer: 2,000 records delivered to {topic} in ")


def test_load_authenticates_with_a_named_provider(orders: Path, tmp_path: Path) -> None:
    """The driver and the tasks import it."""
    (tmp_path / "tokens_of_load.py").write_text(PROVIDER, "utf-8")
    config = tmp_path / "client.properties"
    with FakeCluster.in_thread(1, topics={"t": 1}, security=ClusterSecurity()) as cluster:
        secured = cluster.client_options("SASL_SSL", "OAUTHBEARER")
        config.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in secured.items()), "utf-8")
        topics = Topics(str(secured["bootstrap_servers"]), "t")
        given = ("--config", str(config), "--token-provider", "tokens_of_load:Tokens user=alice", "--exactly-once")
        with started(orders, topics, *given, "--sink", "s", path=f"{ROOT}{os.pathsep}{tmp_path}") as process:
            (line,) = lines(process)
        assert process.returncode == 0
        assert line.startswith("aioproducer: 2,000 records committed to t in ")
        assert cluster.end_offset("t", 0) > ROWS


NOT_FOUND = """An error occurred while calling o61.save.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: aioproducer.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(QueryExecutionErrors.scala:752)
Caused by: java.lang.ClassNotFoundException: aioproducer.DefaultSource
"""


def test_line_of_a_failed_load_has_the_sentence_of_spark() -> None:
    """And not the name of a class that Java has missed below it."""
    line = in_one_line(RuntimeError(NOT_FOUND))

    assert line == ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source: aioproducer.")


@pytest.mark.parametrize(
    "master, reads_row_groups, is_limited",
    [("local[2,4]", True, True), ("local[2,4]", False, False), ("spark://h:7077", True, False)],
)
def test_jvm_that_sees_no_rows_runs_with_its_first_compiler(
    master: str, *, reads_row_groups: bool, is_limited: bool
) -> None:
    conf = default_conf(master, reads_row_groups=reads_row_groups)
    assert ("-XX:TieredStopAtLevel=1" in conf.get("spark.driver.defaultJavaOptions", "")) is is_limited
