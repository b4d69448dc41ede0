"""Functions for a Spark session: settings, registration, threads, `foreachBatch`, and a check of the executors."""

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._version import VERSION
from aioproducer.config._option_names import kafka_name
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.spark._options import KAFKA_PREFIX, SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "aioproducer"

_SECRETS: Final = (
    "(?i)secret|password|token|access[.]?key"  # Spark's own
    "|jaas|credential|keystore[._]key|certificate[._]chain|private key"
)
"""Names and values of options that Spark hides in plans and on its pages."""
_KEY_AS_TEXT: Final = "kafka.ssl.keystore.key"
"""A secret whose name and value Spark's own patterns do not match."""

log: Final = logging.getLogger("aioproducer.spark")

_INSTALL: Final = "pip install 'aioproducer[spark]'"
CONF_OF_ROW_GROUPS: Final = {
    "spark.driver.defaultJavaOptions": "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"
}
"""For local sessions whose rows the JVM never sees, since tasks read row groups in Python: optimizing what schedules
those tasks costs Java's second compiler half of the JVM's time, 15 ms a task, and saves nothing. Spark puts the options
of `spark.driver.extraJavaOptions` behind these."""


def recommended_conf() -> dict[str, str]:
    """Return settings of a session that writes and reads with this format.

    Rows reach Python through a Unix socket and in batches of at most 40,000 rows and 16 MiB, which is faster, and takes
    up to 32 MiB of each task, in the JVM and in Python; speculative copies of tasks are off, because Spark counts each
    copy that loses as a failure of its task; options that hold secrets are hidden in plans, on pages and in event logs,
    also those that Spark shows by itself, such as `kafka.ssl.keystore.key`.

    Example:
        spark = SparkSession.builder.config(map=recommended_conf()).getOrCreate()
    """
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
        "spark.speculation": "false",
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
    }


def register(spark: "SparkSession") -> None:
    """Make the format known to a session in which Spark has not found it by itself.

    Raises:
        ModuleNotFoundError: pyspark, or another package of the extra, is not installed.
    """
    _needed("pyspark.sql.datasource", "pyarrow")
    from pyspark.errors import PySparkException  # noqa: PLC0415  # may not be installed

    from aioproducer.spark._source import AioproducerDataSource  # noqa: PLC0415  # imports pyspark

    try:
        spark.dataSource.register(AioproducerDataSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark 4.0 and 4.1 register no name twice
            raise


def activate(spark: "SparkSession") -> None:
    """Let the calling thread use the format; each Python thread but the main one needs it once.

    Spark looks a format up in the session of its own thread, and a thread of Python has none: it says
    DATA_SOURCE_NOT_FOUND otherwise, also after `register`. Callbacks of `foreachBatch` do not need it, and a session of
    Spark Connect does not: nothing is done there.
    """
    if _is_of_connect(spark):
        return
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001  # py4j


def _is_of_connect(given: "SparkSession | DataFrame") -> bool:
    return type(given).__module__.startswith("pyspark.sql.connect")


@clears_frames
def foreach_batch(
    options: Mapping[str, object] | None = None, /, **more_options: object
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `writeStream.foreachBatch`, which writes each batch with this format.

    A stream in update mode needs it, since Spark lets no Python data source write in that mode.

    Args:
        options: of the write, as `{"kafka.bootstrap.servers": "b1:9092", "topic": "totals"}`. A value is text, a
            number, a bool, a path or a `Secret`; servers may be a list.
        more_options: likewise, for names that Python allows: `topic="totals", exactlyOnce=True`.

    Raises:
        ConfigurationError: an option is unknown, wrong, or missing beside another.
        ConfigurationTypeError: a value is of a type that has no text, such as None.

    The function raises a ConfigurationError over Spark Connect if `exactlyOnce` is given.

    Example:
        totals.writeStream.outputMode("update").foreachBatch(foreach_batch(conf, topic="totals")).start()
    """
    texts = {name: _as_text(name, value) for name, value in {**(options or {}), **more_options}.items()}
    parsed = SinkOptions.parse(texts)
    parsed.check_of_stream()
    is_exact = parsed.exactly_once

    def write(batch: "DataFrame", batch_id: int) -> None:
        if is_exact and _is_of_connect(batch):  # where a write in a function is a job for Spark, of no stream
            raise ConfigurationError(
                "exactlyOnce=true: over Spark Connect foreach_batch cannot write exactly once; give it to "
                'writeStream.format("aioproducer"), or run the query in a classic session',
                option="exactlyOnce",
            )
        batch.write.format(FORMAT).mode("append").options(**texts).option("batchId", str(batch_id)).save()

    return write


def _as_text(name: str, value: object) -> str:
    """Return an option's value as Spark takes it.

    Raises:
        ConfigurationTypeError: it has no text that anyone means; does not show it.
    """
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return str.__str__(value)  # of an enum the value, not its name
    if isinstance(value, Real | PurePath):
        return str(value)
    is_servers = kafka_name(name.lower()) == f"{KAFKA_PREFIX}bootstrap.servers"
    if is_servers and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if value is None:
        raise ConfigurationTypeError(f"{name} is None: leave it out, or give text", option=name)
    allowed = "text or a list of texts" if is_servers else "text, a number, a bool, a path or a Secret"
    raise ConfigurationTypeError(f"{name} must be {allowed}, not {type(value).__name__}", option=name)


class PythonOfExecutor(NamedTuple):
    """Packages of one Python of the session."""

    host: str
    executable: str
    python: str
    """Major and minor version: Spark wants the same everywhere."""
    aioproducer: str | None
    pyspark: str | None
    pyarrow: str | None
    aiokafka: str | None


def check(spark: "SparkSession") -> list[PythonOfExecutor]:
    """Compare the Python of each executor with that of this program.

    A short job runs on the executors; those that Spark starts later are not seen. Logs a warning if plans of this
    session show private keys (see `recommended_conf`).

    Returns:
        What was found, one element per Python.

    Raises:
        ConfigurationError: one lacks a package, has another version of Python, aioproducer or pyspark, or does not
            start; says where, and what to install. Or the session is one of Spark Connect.
        ModuleNotFoundError: pyspark is not installed here.
    """
    _needed("pyspark.sql.datasource", "pyarrow", "aiokafka")
    if _is_of_connect(spark):
        raise ConfigurationError(
            "check(spark): a session of Spark Connect cannot ask the executors; call it in a program with a session "
            "of its own on that cluster, such as one that spark-submit starts"
        )
    context = spark.sparkContext
    # Twice the cores, so that each executor is likely to run a task.
    tasks = max(2, 2 * context.defaultParallelism)
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(_probe()).collect()
    except Exception as error:
        raise ConfigurationError(
            f"no Python of this session's executors could be asked: {_first_line(error)}. Spark starts "
            f"{context.pythonExec!r} there: set PYSPARK_PYTHON to a Python {_own().python} with the packages "
            f"({_INSTALL})"
        ) from error
    distinct = sorted({PythonOfExecutor._make(each) for each in found}, key=lambda each: (each.host, each.executable))
    problems = [f"{each.host}, {each.executable}: {what}" for each in distinct for what in _problems(each, _own())]
    if problems:
        raise ConfigurationError(
            f"executors do not have what this program has; {'; '.join(problems)}. Install the same there "
            f"(pip install 'aioproducer[spark]=={VERSION}'), or set PYSPARK_PYTHON to a Python that has it"
        )
    if _shows_keys(spark):
        log.warning(
            "plans, pages and event logs of this session show %s: it matches neither spark.redaction.regex nor "
            "spark.sql.redaction.options.regex. recommended_conf() has patterns that hide it",
            _KEY_AS_TEXT,
        )
    return distinct


def _shows_keys(spark: "SparkSession") -> bool:
    patterns = [spark.conf.get(f"spark.{name}.regex", None) for name in ("redaction", "sql.redaction.options")]
    try:
        return not any(pattern and re.search(pattern, _KEY_AS_TEXT) for pattern in patterns)
    except re.error:  # of Java's own language
        return False


def _probe() -> Callable[[Iterable[int]], Iterator[tuple[str | None, ...]]]:
    """Return the function of the job; nested, so that Spark takes its code along, where this package may be missing."""

    def probe(_: Iterable[int]) -> Iterator[tuple[str | None, ...]]:
        import importlib.metadata  # noqa: PLC0415  # on the executor
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        versions: list[str | None] = []
        for name in ("aioproducer", "pyspark", "pyarrow", "aiokafka"):
            try:
                versions.append(importlib.metadata.version(name))
            except importlib.metadata.PackageNotFoundError:
                versions.append(None)
        yield (socket.gethostname(), sys.executable, f"{sys.version_info[0]}.{sys.version_info[1]}", *versions)

    return probe


def _own() -> PythonOfExecutor:
    return PythonOfExecutor._make(next(_probe()([])))


def _problems(found: PythonOfExecutor, own: PythonOfExecutor) -> Iterator[str]:
    for name in ("python", "aioproducer", "pyspark"):
        here, there = getattr(own, name), getattr(found, name)
        if here != there:
            yield f"{name} is {there or 'missing'}, and {here} here"
    for name in ("pyarrow", "aiokafka"):
        if getattr(found, name) is None:
            yield f"{name} is missing"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A Python error ends with the line that names it; Java's text begins with it.
    named = [line for line in lines if line.startswith(("pyspark.errors", "ModuleNotFoundError", "ImportError"))]
    return (named or lines or [type(error).__name__])[0]


def _needed(*modules: str) -> None:
    """Import modules of the extra.

    Raises:
        ModuleNotFoundError: one is missing; names the extra.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            package = name.partition(".")[0]
            raise ModuleNotFoundError(f"this needs {package}: {_INSTALL}", name=package) from error
