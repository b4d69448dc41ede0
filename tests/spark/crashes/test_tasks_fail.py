"""Attempts of tasks fail or are stopped; executors of a standalone cluster are killed, or race with copies of tasks."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.spark._commit import SinkCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import GATE, ROWS, MakeCase
from tests.spark.crashes.driver import send
from tests.spark.crashes.faulty_source import Point
from tests.spark.crashes.standalone import StandaloneSpark

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]


@GATE
def test_task_fails(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """One fails in the middle of its rows, one after its transaction was prepared: the next attempt counts."""
    case = make_case(kafka)
    midway = Point("task.rows", 1, task=0, attempt=0, action="fail")
    prepared = Point("task.end", 2, task=1, attempt=0, action="fail")
    with case.driver(midway, prepared) as driver:
        driver.wait_for_point(midway)
        driver.wait_for_point(prepared)
        recovery_s = driver.wait_for_batch(2) - case.faults.file_of(prepared).stat().st_mtime
        case.finish("task fails after producing", driver, recovery_s)


def test_query_stopped(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """Nothing of the stopped batch becomes visible; `txn resolve` lets the readers go on."""
    case, point = make_case(kafka), Point("task.rows", 2, task=0)
    with case.driver(point) as driver:
        driver.wait_for_point(point)
        assert "\ndone\n" in driver.stop_query()  # the progress of a stage may be printed behind it
    assert case.topic.read().open_partitions
    begun = time.monotonic()
    case.ask(SinkCommit.prepare)
    case.check("query.stop() in mid-batch, then resolve", time.monotonic() - begun, 2 * ROWS)
    case.check_end(2 * ROWS)


CONF = {"spark.default.parallelism": "2", "spark.cores.max": "2"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.task.maxFailures": "100",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """One cluster for the cases of this module."""
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def test_executor_killed(make_case: MakeCase, kafka: KafkaCluster, spark: StandaloneSpark) -> None:
    """While it writes; and after its task has ended, when the transaction needs no executor any more."""
    case = make_case(kafka, master=spark.master, conf=CONF)
    writing, ended = Point("task.rows", 1, task=0), Point("decision", 3)
    with case.driver(writing, ended) as driver:
        task = driver.wait_for_point(writing)
        spark.kill(spark.executor_of(task))
        killed = case.faults.file_of(writing).stat().st_mtime
        while_writing_s = driver.wait_for_batch(1) - killed
        asleep = driver.wait_for_point(ended)
        spark.kill(spark.executors()[0])
        send(asleep, signal.SIGCONT)
        after_its_task_s = driver.wait_for_batch(3) - case.faults.file_of(ended).stat().st_mtime
        case.finish("executor killed while it writes", driver, while_writing_s)
    case.check("executor killed after its task, before the decision", after_its_task_s, 4 * ROWS)


def test_stage_retried(make_case: MakeCase, kafka: KafkaCluster, spark: StandaloneSpark) -> None:
    """The output of a shuffle is lost while tasks write: they begin again, as attempt 0 of the same stage."""
    case = make_case(kafka, master=spark.master, conf=CONF, shuffles=True)
    points = [Point("task.rows", 1, task=number) for number in range(2)]
    with case.driver(*points) as driver:
        tasks = [driver.wait_for_point(point) for point in points]
        spark.kill(spark.executor_of(tasks[0]))
        send(tasks[1], signal.SIGCONT)
        recovery_s = driver.wait_for_batch(1) - case.faults.file_of(points[0]).stat().st_mtime
        case.finish("stage retried", driver, recovery_s)


def test_speculative_copy(make_case: MakeCase, kafka: KafkaCluster, spark: StandaloneSpark) -> None:
    """Of a task and its copy on the other worker, the one that comes first waits; the other wins, and it is killed."""
    case = make_case(kafka, master=spark.master, conf={**CONF, **SPECULATION})
    point = Point("task.rows", 1, task=0, action="wait")
    with case.driver(point) as driver:
        driver.wait_for_point(point)
        recovery_s = driver.wait_for_batch(1) - case.faults.file_of(point).stat().st_mtime
        attempts = Path(case.faults.folder, "attempts").read_text("utf-8").splitlines()
        assert [attempt for batch, task, attempt in map(json.loads, attempts) if (batch, task) == (1, 0)] != [0]
        case.finish("speculative copy", driver, recovery_s)
