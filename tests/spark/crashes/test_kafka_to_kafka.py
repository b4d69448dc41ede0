"""From one topic to another, read and written by us, without a jar; the driver dies midway in the round."""

from dataclasses import replace

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import GATE, ROWS, MakeCase
from tests.spark.crashes.faulty_source import Point
from tests.spark.crashes.query import Job
from tests.spark.crashes.topic import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

BATCHES = 4


@GATE
def test_kafka_to_kafka(make_case: MakeCase, kafka: KafkaCluster) -> None:
    """Every row of the first topic is in the second once."""
    case, point = make_case(kafka), Point("round.half", 1)
    source = Topic(kafka.bootstrap_servers, f"{case.name}-source")
    source.create()
    source.fill(range(BATCHES * ROWS))
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": source.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS),
    }

    def from_kafka(job: Job) -> Job:
        return replace(job, source="aioproducer", source_options=options)

    with case.driver(point, change=from_kafka) as first:
        first.wait_for_point(point)
        first.kill()
    with case.driver(cores=3, change=from_kafka) as second:
        recovery_s = second.wait_for_batch(1) - second.begun
        second.wait_for_batch(BATCHES - 1)
        second.kill()
    case.check("Kafka to Kafka, driver killed midway in the round", recovery_s, BATCHES * ROWS)
    case.check_end(BATCHES * ROWS)
