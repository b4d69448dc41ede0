"""Functions for a session, where neither Spark nor its session is there."""

import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark import foreach_batch, recommended_conf

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
for name in ("pyspark", "pyarrow", "aiokafka"):
    sys.modules[name] = None  # as if it were not installed
import aioproducer.spark
import pyspark_aioproducer
assert not hasattr(pyspark_aioproducer, "Other")
try:
    aioproducer.spark.{call}(None)
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize("call", ["register", "check"])
def test_missing_extra_is_named(call: str) -> None:
    """By the first call that needs it; importing needs nothing."""
    program = [sys.executable, "-c", WITHOUT.format(call=call)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "this needs pyspark: pip install 'aioproducer[spark]'"


def test_imports_are_light() -> None:
    """Spark imports the module of the format in every session of every user."""
    program = (
        "import sys, aioproducer.spark, pyspark_aioproducer; print({'pyspark', 'pyarrow', 'aiokafka'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_foreach_batch_checks_its_options_at_once() -> None:
    """Before a query starts."""
    with pytest.raises(ConfigurationError, match="exactlyOnce=true needs sinkId"):
        foreach_batch({"kafka.bootstrap.servers": "b1:9092"}, topic="t", exactlyOnce=True)


def test_settings_are_text() -> None:
    """As `SparkSession.builder.config(map=...)` wants them."""
    conf = recommended_conf()
    assert conf["spark.speculation"] == "false"
    assert all(isinstance(value, str) for value in conf.values())
