"""Attempts of tasks fail after they have sent rows, and the query is stopped in the middle of a batch."""

import time

import pytest

from aioproducer.spark._commit import SinkCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import GATE, ROWS, MakeCase
from tests.spark.crashes.faulty_source import Point

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
