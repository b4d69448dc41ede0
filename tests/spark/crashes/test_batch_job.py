"""A job that is no stream: all or nothing, and with runId a run that is finished is not done again."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.spark.crashes.case import ROWS, MakeCase
from tests.spark.crashes.driver import Driver
from tests.spark.crashes.faulty_source import Point
from tests.spark.crashes.query import Job

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
