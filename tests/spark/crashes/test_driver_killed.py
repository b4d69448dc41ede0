"""The driver is killed at each point of a batch and started again with other cores: every row is there once."""

from collections.abc import Callable

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, Case
from tests.spark.crashes.driver import Driver, wait_until
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]


def test_without_exactly_once_rows_come_twice(make_case: Callable[..., Case], kafka_431: KafkaCluster) -> None:
    """The harness sees duplicates where there must be some."""
    case = make_case(kafka_431, exactly_once=False)
    point = Point("task.end", 1, task=0)
    with case.driver(point) as first:
        first.wait_for_point(point)
        first.wait_for_commit_log(0)
        first.kill()
    with case.driver(cores=3) as second:
        second.wait_for_commit_log(1)
        second.kill()
    assert case.topic.read().duplicates() > 0
