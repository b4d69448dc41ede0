"""Transactions are aborted by their coordinator, because a driver sleeps for longer than transactionTimeout."""

import re
import signal

import pytest

from aioproducer.spark._commit import LostTransactionsError, SinkCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, Case, MakeCase
from tests.spark.crashes.driver import send, wait_until
from tests.spark.crashes.faulty_source import Point

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

TIMEOUT = {"transactionTimeout": "40s"}
"""Long enough for the first batch of a cold JVM on a busy machine."""


def sleep_until_timed_out(case: Case, point: Point) -> str:
    """Return what a driver says that slept at a point until no transaction was open any more."""
    with case.driver(point) as driver:
        asleep = driver.wait_for_point(point)
        wait_until(lambda: not case.topic.read().open_partitions, lambda: "transactions do not time out")
        send(asleep, signal.SIGCONT)
        return driver.wait_for_end()


def test_before_the_decision(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The batch is redone."""
    case = make_case(kafka, options=TIMEOUT)
    assert "ended before the batch was decided" in sleep_until_timed_out(case, Point("commit", 1))
    with case.driver(cores=3) as driver:
        recovery_s = driver.wait_for_batch(1) - driver.begun
        case.finish("transactions timed out before the decision", driver, recovery_s)


def test_after_the_decision(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """The error names ids and rows of what is lost; every start says so again, until the loss is accepted."""
    case = make_case(kafka, options=TIMEOUT)
    said = sleep_until_timed_out(case, Point("round.half", 1))
    named = re.findall(rf"{case.name}\.1\.\d+\.\d+ \((\d+) rows\)", said)
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
