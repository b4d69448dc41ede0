"""`aioproducer load --exactly-once`, killed at moments of chance and run again under its run id."""

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.cli.commands import PROGRAM
from tests.spark.conftest import ROW
from tests.spark.crashes.case import TableRow
from tests.spark.crashes.driver import spark_environment
from tests.spark.crashes.topic import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

ROWS = 2_000
"""Of a run."""
RATE = 1_000
"""A run sends for two seconds."""
ROW_GROUP = 200
PATIENCE_S = 300.0
KILLS = {"alone": (8, 8.0), "on Spark": (3, 40.0)}
"""Where it runs: how many runs are killed, and how long after their start at the latest."""


@pytest.mark.parametrize("where", KILLS)
def test_killed_load_is_whole_or_nothing(
    kafka: KafkaCluster, tmp_path: Path, record_property: Callable[[str, object], None], *, where: str
) -> None:
    """Each run is killed once; what is run again does the rest, and nothing twice."""
    kills, latest_s = KILLS[where]
    topic = f"load-{where.replace(' ', '-')}"
    target = Topic(kafka.bootstrap_servers, topic)
    target.create()
    chance = random.Random(kafka.version)
    for number in range(kills):
        file = tmp_path / f"{number}.parquet"
        rows = [str(row) for row in range(number * ROWS, (number + 1) * ROWS)]
        pq.write_table(pa.table({"value": rows}), file, row_group_size=ROW_GROUP)
        load = ["load", str(file), "--topic", topic, "-b", kafka.bootstrap_servers, "--rate", str(RATE)]
        load += ["--exactly-once", "--sink", topic, "--run-id", str(number)]
        load += ["--master", "local[2]"] if where == "on Spark" else []
        kill_after(load, chance.uniform(0, latest_s), tmp_path)
        done = subprocess.run([*PROGRAM, *load], env=spark_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = target.read()
    doubled = sum(found.counts.values()) - len(found.counts)
    row = TableRow(f"load {where}, {kills} kills", kafka.version, doubled, found.missing(kills * ROWS), 0.0)
    record_property(ROW, tuple(row))
    assert (row.duplicates, row.missing, found.open_partitions) == (0, 0, ()), row


def kill_after(load: list[str], seconds: float, folder: Path) -> None:
    """Start a load, and kill it if it has not ended by then; the JVM below it ends with its input."""
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen(
            [*PROGRAM, *load], env=spark_environment(), stdin=subprocess.PIPE, stdout=log, stderr=log
        ) as process,
    ):
        time.sleep(seconds)  # this is what is tested
        process.kill()
