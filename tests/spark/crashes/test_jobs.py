"""Other jobs than a stream of numbers: files with a runId, and from one topic to another, read and written by us."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, MakeCase
from tests.spark.crashes.driver import Driver
from tests.spark.crashes.faulty_source import Point
from tests.spark.crashes.query import Job
from tests.spark.crashes.topic import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

FILES = 4


@pytest.mark.parametrize("point", [Point("decision"), Point("round.half")], ids=["before-decision", "in-round"])
def test_job_killed_and_run_again(make_case: MakeCase, kafka: KafkaCluster, point: Point) -> None:
    """Nothing is visible before the decision; the second run finishes the first; the third does nothing."""
    case = make_case(kafka, options={"runId": "2026-11-25"})
    folder = case.folder / "rows"
    folder.mkdir()
    for number in range(FILES):
        rows = pa.table({"value": list(range(number * ROWS, (number + 1) * ROWS))})
        pq.write_table(rows, folder / f"{number}.parquet")

    def of_files(job: Job) -> Job:
        return replace(job, source="parquet", source_options={"path": str(folder)})

    with case.driver(point, change=of_files) as first:
        first.wait_for_point(point)
        first.kill()
    if point.at == "decision":
        assert not case.topic.read().counts
    run_to_end(case.driver(cores=3, change=of_files))
    case.check(f"job of files killed: {point.at}", 0.0, FILES * ROWS)
    run_to_end(case.driver(change=of_files))
    case.check_end(FILES * ROWS)


def run_to_end(driver: Driver) -> None:
    with driver:
        assert driver.wait_for_end().endswith("done\n")


BATCHES = 4


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
