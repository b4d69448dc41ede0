"""The driver is killed at each point of a batch and started again with other cores: every row is there once."""

import signal
from collections.abc import Sequence

import psutil
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, Case, MakeCase
from tests.spark.crashes.driver import send, wait_until
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

DEATHS = [
    ("driver killed before the decision", Point("decision", 1)),
    ("driver killed midway in the round", Point("round.half", 2)),
    ("driver killed after the round, before Spark's log", Point("round", 3)),
]
OTHERS = [
    ("driver killed while tasks run", Point("task.rows", 1, task=0)),
    ("driver killed when a task has ended", Point("task.end", 2, task=1)),
    ("driver killed in the decision's transaction", Point("decided.half", 3)),
    ("driver killed after the decision", Point("decided", 4)),
]


def kill_in_turn(case: Case, deaths: Sequence[tuple[str, Point]]) -> None:
    """Each driver recovers what the one before it left, goes on, and dies at its own point; the last lives."""
    died_of: tuple[str, Point] | None = None
    rows = 0
    for number, death in enumerate([*deaths, None]):
        points = [] if death is None else [death[1]]
        with case.driver(*points, cores=2 + number % 2) as driver:
            recovery_s = 0.0 if died_of is None else driver.wait_for_batch(died_of[1].batch) - driver.begun
            if death is None:
                rows = (driver.halt() + 1) * ROWS
            else:
                driver.wait_for_point(death[1])
                driver.kill()
        if died_of is not None:
            case.check(died_of[0], recovery_s, (died_of[1].batch + 1) * ROWS)
        died_of = death
    case.check_end(rows)


def test_driver_killed(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """Before the decision the batch is redone; after it the batch is finished and skipped."""
    kill_in_turn(make_case(kafka), DEATHS)


def test_driver_killed_elsewhere(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The other points of a batch."""
    kill_in_turn(make_case(kafka), OTHERS)


def test_task_outlives_its_driver(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """A task wakes after its batch was redone: what it sends from then on is refused."""
    case, point = make_case(kafka), Point("task.rows", 1, task=0)
    with case.driver(point) as first:
        task = first.wait_for_point(point)
        first.kill(spare=task)
        with case.driver(cores=3) as second:
            recovery_s = second.wait_for_batch(1) - second.begun
            send(task, signal.SIGCONT)
            wait_until(lambda: not is_alive(task), lambda: f"task {task} goes on")
            case.finish("task outlives its driver", second, recovery_s)


def is_alive(process_id: int) -> bool:
    return psutil.pid_exists(process_id) and psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE


def test_without_exactly_once_rows_come_twice(make_case: MakeCase, kafka_440: KafkaCluster) -> None:
    """The harness sees duplicates where there must be some."""
    case, point = make_case(kafka_440, exactly_once=False), Point("task.end", 1, task=0)
    with case.driver(point) as first:
        first.wait_for_point(point)
        first.kill()
    with case.driver(cores=3) as second:
        second.wait_for_batch(1)
        second.kill()
    counts = case.topic.read().counts
    assert any(counts[number] > 1 for number in range(ROWS, 2 * ROWS))
