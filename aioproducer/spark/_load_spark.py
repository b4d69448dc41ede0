"""Load of files into a topic on Spark: Parquet by its row groups, which tasks read with pyarrow; else a DataFrame."""

import logging
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from aioproducer.errors import ConfigurationError
from aioproducer.spark._commit import (
    ForgottenTransactionsError,
    LostTransactionsError,
    SupersededError,
    UncertainCommitError,
    UnfinishedCommitError,
)
from aioproducer.spark._record_parts import RowShape
from aioproducer.spark._row_groups import Split, records_of
from aioproducer.spark._session import CONF_OF_ROW_GROUPS, check, recommended_conf, register

FORMAT: Final = "aioproducer"
VIEW: Final = "input"
"""Name of the files in `--sql`."""

_SPLITS: Final = StructType(
    [StructField("path", StringType(), nullable=False), StructField("row_group", IntegerType(), nullable=False)]
)
_ERROR = re.compile(r"(?:^|[\s:(])(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (\S.*)", re.MULTILINE)
_OF_COMMIT: Final = frozenset(
    each.__name__
    for each in (
        ForgottenTransactionsError,
        LostTransactionsError,
        SupersededError,
        UncertainCommitError,
        UnfinishedCommitError,
    )
)
"""Errors of a commit; they say more than one of the abort that Spark asks for after it."""
_SAY_LESS: Final = frozenset(
    ("PythonException", "SparkException", "Py4JJavaError", "ClassNotFoundException", "SparkClassNotFoundException")
)
"""Exceptions around another, or below Spark's own sentence, which says more."""
_SPARK_CLASS = re.compile(r"(?:^|: )\[([A-Z_.0-9]+)\] (.+)", re.MULTILINE)


@contextmanager
def session(
    master: str, conf: Mapping[str, str], *, is_verbose: bool, reads_row_groups: bool
) -> Iterator[SparkSession]:
    """Start Spark for one load, and stop it.

    Args:
        reads_row_groups: whether tasks read row groups in Python, and no DataFrame.

    Raises:
        ConfigurationError: Spark does not start, or an executor lacks a package.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark takes the first python3 on PATH otherwise
    warnings.filterwarnings("ignore", module=r"pyspark\.")
    logging.getLogger("SQLQueryContextLogger").disabled = not is_verbose  # prints errors of Spark with Java's stack
    settings = {**default_conf(master, reads_row_groups=reads_row_groups), **conf}
    with _stderr_to_file(is_on=not is_verbose) as log:
        try:
            spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
        except Exception as error:
            raise ConfigurationError(f"Spark does not start: {in_one_line(error)[1]}{_last_line(log)}") from error
    if not is_verbose:
        # py4j tells with tracebacks of calls that a signal has ended: by its own loggers, and by the root.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.root.addFilter(_is_not_py4j)
    with suppress(ValueError):  # not the main thread
        # pyspark's own handler asks the JVM in the middle of another call, and prints how that fails.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        register(spark)  # Spark itself finds no package that was installed editable
        check(spark)
        yield spark
    finally:
        spark.stop()


def default_conf(master: str, *, reads_row_groups: bool) -> dict[str, str]:
    """Return the settings of a load's session that its own options may replace; arguments as those of `session`."""
    return {
        **recommended_conf(),
        **(CONF_OF_ROW_GROUPS if reads_row_groups and master.startswith("local") else {}),
        "spark.app.name": "aioproducer load",
        "spark.sql.session.timeZone": "UTC",  # so that times have the text that they have without Spark
        "spark.ui.enabled": "false",
    }


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record is not what py4j says of a call that a signal has ended."""
    return "while sending command" not in str(record.msg)


@contextmanager
def _stderr_to_file(*, is_on: bool) -> Iterator[IO[bytes] | None]:
    """Give what is started in the block a file for standard error: Java and its workers, which keep it.

    The command reports errors in a line of its own; `--verbose` shows theirs too.
    """
    if not is_on:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        own = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            sys.stderr.flush()
            os.dup2(own, 2)
            os.close(own)


def _last_line(log: IO[bytes] | None) -> str:
    if log is None:
        return ""
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line and not line.startswith("\t")]
    return f": {lines[-1]}" if lines else ""


def task_progress(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the running stages have ended, and how many there are; for another thread."""
    tracker = spark.sparkContext.statusTracker()
    stages = [found for each in tracker.getActiveStageIds() if (found := tracker.getStageInfo(each)) is not None]
    return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


def task_count(spark: SparkSession, wanted: int | None, splits: Sequence[Split] | None) -> int:
    """Return how many tasks load: as wanted, or as many as Spark has cores; at most one for each row group."""
    tasks: int = wanted or spark.sparkContext.defaultParallelism
    return tasks if splits is None else max(1, min(int(tasks), len(splits)))


def load_row_groups(spark: SparkSession, splits: Sequence[Split], *, tasks: int, options: Mapping[str, str]) -> None:
    """Have tasks read row groups and send them; the options of the data source have `input=splits` among them."""
    rows = [(each.path, each.row_group) for each in in_even_shares(splits, tasks)]
    # `parallelize` cuts the list exactly; `repartition` would deal out rows at random.
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, tasks), _SPLITS)
    frame.write.format(FORMAT).mode("append").options(**options).save()


def in_even_shares(splits: Sequence[Split], tasks: int) -> list[Split]:
    """Order row groups so that equal runs of them are about equal in bytes."""
    by_size = sorted(splits, key=lambda split: split.bytes, reverse=True)
    # Spark gives task i the rows from i * n // tasks on: the first so many shares have one row group more.
    ends = [(number + 1) * len(splits) // tasks for number in range(tasks)]
    room = [end - (ends[number - 1] if number else 0) for number, end in enumerate(ends)]
    shares: list[list[Split]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for split in by_size:
        least = min((number for number in range(tasks) if len(shares[number]) < room[number]), key=sizes.__getitem__)
        shares[least].append(split)
        sizes[least] += split.bytes
    return [split for share in shares for split in share]


def dry_run(spark: SparkSession, splits: Sequence[Split], *, tasks: int, shape: RowShape) -> dict[str, int]:
    """Have tasks read row groups and make the records; send nothing."""
    rows = [(each.path, each.row_group) for each in in_even_shares(splits, tasks)]

    def count(share: Iterator[tuple[str, int]]) -> Iterator[tuple[int, int]]:
        for path, row_group in share:
            for batch in records_of(path, row_group, shape):
                yield batch.num_rows, batch.nbytes

    counts = spark.sparkContext.parallelize(rows, tasks).mapPartitions(count).collect()
    return {"rows": sum(rows for rows, _ in counts), "bytes": sum(octets for _, octets in counts)}


def load_frame(records: DataFrame, tasks: int | None, options: Mapping[str, str]) -> None:
    """Send a DataFrame of records."""
    shared = records if tasks is None else records.repartition(tasks)
    shared.write.format(FORMAT).mode("append").options(**options).save()


def counted(records: DataFrame) -> int:
    """Return how many records there are, after making each."""
    records.write.format("noop").mode("append").save()
    return int(records.count())


def read_frame(spark: SparkSession, paths: Sequence[str], *, file_format: str, sql: str | None) -> DataFrame:
    """Return what `spark.read` makes of files, or the answer to a query that may call them `input`."""
    if not paths:
        return spark.sql(sql or "")
    reader = spark.read.format(file_format)
    if file_format == "csv":
        reader = reader.option("header", "true")
    frame = reader.load(list(paths))
    if sql is None:
        return frame
    frame.createOrReplaceTempView(VIEW)
    return spark.sql(sql)


def as_records(frame: DataFrame, shape: RowShape) -> DataFrame:
    """Return the columns `value`, and `key` if there are keys.

    Raises:
        ConfigurationError: a column is missing.
    """
    records = {"value": f.to_json(f.struct("*")) if shape.value is None else _text_of(frame, "--value", shape.value)}
    if shape.key is not None:
        records["key"] = _text_of(frame, "--key", shape.key)
    return frame.select(*(column.alias(name) for name, column in sorted(records.items())))


def _text_of(frame: DataFrame, option: str, name: str) -> Column:
    if name not in frame.columns:
        hint = "; --json makes the value from all columns" if option == "--value" else ""
        raise ConfigurationError(f"the input has no column {name!r}; it has {', '.join(frame.columns)}{hint}")
    column = frame[f"`{name}`"]
    is_ready = isinstance(frame.schema[name].dataType, (BinaryType, StringType))
    return column if is_ready else column.cast("string")


def in_one_line(error: Exception) -> tuple[str, str]:
    """Return the name of the exception that began it and its text, out of Spark's pages about it."""
    text = str(error)
    found: list[tuple[str, str]] = _ERROR.findall(text)
    ours = [each for each in found if each[0] not in _SAY_LESS]
    if ours:
        return ([each for each in ours if each[0] in _OF_COMMIT] or ours)[-1]
    if (of_spark := _SPARK_CLASS.search(text)) is not None:
        return of_spark[1], of_spark[2]
    if found:
        return found[-1]
    return type(error).__name__, text.strip().partition("\n")[0]
