"""Secrets of options are in no event log, which the history server shows; sessions of their own write one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.functions.conftest import ROOT
from tests.spark.functions.secret_options import CANARY

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from aioproducer.spark import recommended_conf
from tests.spark.functions.secret_options import SECRETS, TOKENS

folder, is_recommended = sys.argv[1], sys.argv[2] == "True"
conf = recommended_conf() if is_recommended else {}
log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder, "spark.eventLog.compress": "false"}
spark = SparkSession.builder.master("local[1]").config(map={**conf, **log, "spark.ui.enabled": "false"}).getOrCreate()
options = {"kafka.bootstrap.servers": "127.0.0.1:1", **SECRETS}
tokens = {"kafka.bootstrap.servers": "127.0.0.1:1", **TOKENS}
provided = ", ".join(f"`{name}` '{value}'" for name, value in {**tokens, "subscribe": "t"}.items())
spark.sql(f"CREATE TEMPORARY VIEW provided USING aioproducer OPTIONS ({provided})")
read = ", ".join(f"`{name}` '{value}'" for name, value in {**options, "subscribe": "t"}.items())
spark.sql(f"CREATE TEMPORARY VIEW orders USING aioproducer OPTIONS ({read})")
rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
for attempt in (
    lambda: spark.sql("SELECT * FROM orders").collect(),
    lambda: rows.write.format("aioproducer").mode("append").options(topic="t", **options).save(),
    lambda: rows.write.format("aioproducer").mode("append").options(topic="t", **tokens).save(),
    lambda: spark.read.format("aioproducer").options(subscribe="t", **tokens).load().collect(),
):
    try:
        attempt()
    except Exception as error:
        print(str(error)[-300:])
spark.stop()
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_recommended", [True, False])
def test_event_log_holds_no_secret(tmp_path: Path, is_recommended: bool) -> None:  # noqa: FBT001  # a parameter
    """Without the recommended settings Spark hides passwords alone: the pages say so, and this shows it."""
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path), str(is_recommended)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    (log,) = tmp_path.glob("*/events_*")
    written = log.read_text("utf-8")
    assert "CreateTempViewUsing" in written
    if is_recommended:
        assert CANARY not in written + done.stdout + done.stderr
    else:
        assert f"{CANARY}-key" in written
        assert f"{CANARY}-jaas" not in written
        assert f"{CANARY}-password" not in written
        assert f"{CANARY}-token" not in written
