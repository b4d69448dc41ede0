"""Two drivers under one sinkId: of one query, one of them asleep; and of two queries."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import MakeCase
from tests.spark.crashes.driver import send
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
