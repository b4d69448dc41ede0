"""Losses that are promised to be told are on Spark's standard error, with a session that has just begun."""

import os
import subprocess
import sys

import pytest

from tests.spark.functions.conftest import ROOT, Topics

PROGRAM = """
import sys
from pyspark.sql import SparkSession

servers, topic = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(2).selectExpr("repeat('x', CAST(10 + id * 5000 AS INT)) AS value")
once = {"exactlyOnce": "true", "sinkId": topic, "runId": "1", "onOversize": "skip", "kafka.max.request.size": "2000"}
writer = rows.write.format("aioproducer").mode("append").options(**once)
writer.options(**{"kafka.bootstrap.servers": servers, "topic": topic, "report": "/nonexistent/report"}).save()
reader = spark.read.format("aioproducer").option("kafka.bootstrap.servers", servers)
reader.options(subscribe=topic, failOnDataLoss="false", endingOffsets=f'{{"{topic}": {{"0": 50}}}}').load().count()
spark.stop()
"""


@pytest.mark.timeout(300)
def test_losses_are_on_standard_error(embedded_topics: Topics) -> None:
    """The processes ask the cluster before they log, by which they make an event log that silences the package."""
    topic = embedded_topics.create_own(1)
    program = [sys.executable, "-c", PROGRAM, embedded_topics.servers, topic]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    for said in (
        "INFO aioproducer.spark: run 1, batch None: 1 rows",
        "WARNING aioproducer.spark: run 1, batch None: 1 rows too large were skipped",
        "WARNING aioproducer.spark: report=/nonexistent/report cannot be written",
        f"WARNING aioproducer.spark: offsets 2 to 50 of {topic}-0 are not there",
    ):
        assert said in done.stderr, done.stderr[-5000:]
