"""Functions for a session, where neither Spark nor its session is there."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.config.producer_config import option_kinds
from aioproducer.errors import ConfigurationError
from aioproducer.security import Secret
from aioproducer.spark import activate, check, foreach_batch, recommended_conf
from aioproducer.spark._session import _shows_keys

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


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
def test_writers_on_the_driver_import_nothing_of_tasks() -> None:
    """The first write of a session waits until two processes have imported the writer's module."""
    of_tasks = {
        "pyarrow",
        "anyio",
        *(f"aioproducer.spark.{name}" for name in ("_task", "_row_groups", "_source_options")),
    }
    program = f"import sys, aioproducer.spark._source, aioproducer.spark._writer; print({of_tasks} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "options, said",
    [
        ({}, "exactlyOnce=true needs sinkId"),
        ({"sinkId": "s", "runId": "monday"}, "runId is for batch jobs: the batches of a stream have numbers"),
        ({"sinkId": "s", "batchId": 0}, "batchId cannot be set"),
        ({"sinkId": None}, "sinkId is None: leave it out, or give text"),
        ({"sinkId": ["s"]}, "sinkId must be text, a number, a bool, a path or a Secret, not list"),
        ({"header.x": b"1"}, "header.x must be text, .* not bytes"),
        ({"kafka.bootstrap_servers": [1]}, "kafka.bootstrap_servers must be text or a list of texts, not list"),
    ],
)
def test_foreach_batch_checks_its_options_at_once(options: dict[str, object], said: str) -> None:
    """Before a query starts."""
    with pytest.raises(ConfigurationError, match=said):
        foreach_batch({"kafka.bootstrap.servers": "b1:9092", **options}, topic="t", exactlyOnce=True)


class OfConnect:
    """Stands in for a session or a DataFrame of Spark Connect, which has no JVM."""

    __module__ = "pyspark.sql.connect.session"


def test_thread_needs_nothing_over_spark_connect() -> None:
    activate(OfConnect())


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
def test_check_says_that_spark_connect_has_none() -> None:
    with pytest.raises(ConfigurationError, match=r"^check\(spark\): a session of Spark Connect cannot ask"):
        check(OfConnect())


def test_foreach_batch_is_not_exact_over_spark_connect() -> None:
    """Which writes exactly once there."""
    write = foreach_batch({"kafka.bootstrap.servers": "b1:9092"}, topic="t", exactlyOnce=True, sinkId="s")
    with pytest.raises(ConfigurationError, match=r'over Spark Connect .* writeStream\.format\("aioproducer"\)'):
        write(OfConnect(), 0)


class Written:
    """Stands in for a DataFrame: its options are kept."""

    def __init__(self) -> None:
        self.write = self
        self.given: dict[str, str] = {}

    def mode(self, _: str) -> "Written":
        return self

    format = mode

    def options(self, **given: str) -> "Written":
        self.given |= given
        return self

    def option(self, name: str, value: str) -> "Written":
        return self.options(**{name: value})

    def save(self) -> None:
        pass


def test_foreach_batch_gives_spark_the_texts_that_are_meant() -> None:
    """Of secrets, servers, numbers and words."""
    conf = {"kafka.bootstrap.servers": ["b1:9092", "b2:9092"], "kafka.linger.ms": 5, "report": Path("/r")}
    secured = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    frame = Written()
    write = foreach_batch({**conf, **secured, "kafka.sasl.password": Secret("pw")}, topic="t", includeHeaders=True)
    write(frame, 7)
    assert frame.given == {
        **secured,
        "kafka.bootstrap.servers": "b1:9092,b2:9092",
        "kafka.linger.ms": "5",
        "kafka.sasl.password": "pw",
        "report": "/r",
        "topic": "t",
        "includeHeaders": "true",
        "batchId": "7",
    }


@pytest.mark.parametrize("separator", [".", "_"])
def test_secrets_are_hidden_by_the_recommended_patterns(separator: str) -> None:
    """Each option that the configuration marks as one; Spark's own patterns leave the private key."""
    conf = recommended_conf()
    recommended = [conf["spark.redaction.regex"], conf["spark.sql.redaction.options.regex"]]
    of_spark = ["(?i)secret|password|token|access[.]?key", "(?i)url"]
    names = [name for name, kind in option_kinds().items() if getattr(kind, "is_secret", False)]
    shown = [name for name in names if not matches(recommended, f"kafka.{name.replace('_', separator)}")]
    assert shown == []
    assert "ssl_keystore_key" in names
    assert not matches(of_spark, "kafka.ssl.keystore.key")
    assert matches(recommended, "-----BEGIN RSA PRIVATE KEY-----")


class BareSession:
    """Stands in for a session, with these settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = settings


@pytest.mark.parametrize(
    "settings, shows",
    [
        ({}, True),
        ({"spark.redaction.regex": "(?i)password", "spark.sql.redaction.options.regex": "(?i)url"}, True),
        (recommended_conf(), False),
        ({"spark.sql.redaction.options.regex": "keystore"}, False),
        ({"spark.redaction.regex": "(?<name>"}, False),  # no pattern of Python's
    ],
)
def test_session_that_shows_private_keys_is_known(settings: dict[str, str], *, shows: bool) -> None:
    assert _shows_keys(BareSession(settings)) is shows


def matches(patterns: list[str], text: str) -> bool:
    return any(re.search(pattern, text) for pattern in patterns)


def test_settings_are_text() -> None:
    """As `SparkSession.builder.config(map=...)` wants them."""
    conf = recommended_conf()
    assert conf["spark.speculation"] == "false"
    assert all(isinstance(value, str) for value in conf.values())
