"""Drivers that sleep while another takes the sink over or their transactions time out; two queries with one sinkId."""

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from aioproducer.spark._commit import LostTransactionsError, SinkCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, Case, MakeCase
from tests.spark.crashes.driver import send, wait_until
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]


def test_zombie_driver(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """A driver sleeps before its decision, another takes over: the decision of the first is refused when it wakes."""
    case, point = make_case(kafka), Point("decision", 1)
    with case.driver(point) as first:
        asleep = first.wait_for_point(point)
        with case.driver(cores=3) as second:
            recovery_s = second.wait_for_batch(1) - second.begun
            send(asleep, signal.SIGCONT)
            assert "another driver works under this sinkId" in first.wait_for_end()
            case.finish("zombie driver", second, recovery_s)


def test_two_queries_share_a_sink(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The second has another checkpoint: it writes nothing, and says why."""
    case = make_case(kafka)
    with case.driver() as first:
        first.wait_for_batch(0)
        with case.driver(change=lambda job: replace(job, checkpoint=f"{job.checkpoint}-2")) as second:
            said = second.wait_for_end()
            assert "belongs to one query" in said or "another driver works under this sinkId" in said
            assert case.name in said
    with case.driver(cores=3) as third:
        last = max(int(each.name) for each in Path(case.checkpoint, "commits").iterdir() if each.name.isdecimal())
        recovery_s = third.wait_for_batch(last + 1) - third.begun
        case.finish("two queries, one sinkId", third, recovery_s)


TIMEOUT = {"transactionTimeout": "40s"}
"""Long enough for the first batch of a cold JVM on a busy machine."""


def sleep_until_timed_out(case: Case, point: Point) -> str:
    """Return what a driver says that slept at a point until no transaction was open any more."""
    with case.driver(point) as driver:
        asleep = driver.wait_for_point(point)
        wait_until(lambda: not case.topic.read().open_partitions, lambda: "transactions do not time out")
        send(asleep, signal.SIGCONT)
        return driver.wait_for_end()


def test_timed_out_before_the_decision(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The batch is redone."""
    case = make_case(kafka, options=TIMEOUT)
    assert "ended before the batch was decided" in sleep_until_timed_out(case, Point("commit", 1))
    with case.driver(cores=3) as driver:
        recovery_s = driver.wait_for_batch(1) - driver.begun
        case.finish("transactions timed out before the decision", driver, recovery_s)


def test_timed_out_after_the_decision(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The error names ids and rows of what is lost; every start says so again, until the loss is accepted."""
    case = make_case(kafka, options=TIMEOUT)
    said = sleep_until_timed_out(case, Point("round.half", 1))
    named = re.findall(rf"{case.name}\.\d\.\d+\.\d+ \((\d+) rows\)", said)
    total = re.search(r"(\d+) rows are missing", said)
    assert named
    assert total
    lost = int(total[1])
    assert lost == sum(map(int, named)) == case.topic.read().missing(2 * ROWS)
    with pytest.raises(LostTransactionsError):
        case.ask(SinkCommit.prepare)
    case.ask(SinkCommit.accept_loss)
    with case.driver(cores=3) as driver:
        recovery_s = driver.wait_for_batch(1) - driver.begun
        case.finish("transactions timed out after the decision", driver, recovery_s, missing=lost)
