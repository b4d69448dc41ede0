"""Writes `reference/spark_options.md` from the options of `aioproducer/spark` and the texts below.

Run it after changing an option: `python docs/generate_spark_options.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from aioproducer.spark import _options as options
from aioproducer.spark import _source_options as source_options

PAGE = Path(__file__).parent / "reference" / "spark_options.md"

INTERNAL = frozenset({"input"})
"""Options that only this package gives."""

SINK_TEXTS = {
    "topic": "Topic of every row; it wins over a column `topic`. Required without that column.",
    "exactlyOnce": "Each row is in Kafka once, whatever fails; a batch job is all or nothing. "
    "Without it, a task that is repeated sends its rows again.",
    "sinkId": "Name of this sink: 1 to 200 of `A-Z a-z 0-9 . _ -`. Required with `exactlyOnce`; the same over "
    "restarts, and used by one query at a time.",
    "runId": "Name of a batch job's run: a second run with the same name does nothing once the first has finished. "
    "With `exactlyOnce`.",
    "batchId": "Number of the batch, which `foreach_batch` gives. A stream refuses it, and so does `foreach_batch` "
    "among its options: Spark numbers the batches.",
    "decisionTopic": "Existing topic whose group offsets keep the decision. Required with `exactlyOnce` "
    "if topics come from a column.",
    "transactionTimeout": "How long a task's transaction may stay open before it is decided; longer than the slowest "
    "batch, and at most the broker's `transaction.max.timeout.ms`. With `exactlyOnce`.",
    "commitTimeout": "How long the commit of a decided batch is retried before the query fails. With `exactlyOnce`.",
    "extraColumns": "`ignore` drops columns that are no part of a record, as Spark's sink does.",
    "maxRecordsPerSecond": "Limit of each task, not of all: a task does not know how many run.",
    "onOversize": "`skip` leaves out rows over `kafka.max.request.size`, also from the transactions of `exactlyOnce`; "
    "the log and the report count them.",
    "report": "File on the driver to which a line of JSON is appended for each batch: rows, bytes, batches, "
    "retries, rows per partition of Kafka, transactions, seconds of the commit.",
    "createTopic": "Creates the option `topic` if it does not exist: `partitions:replicas`, or partitions alone for as "
    "many replicas as the cluster gives. A topic that exists stays as it is.",
    "includeHeaders": "Accepted and ignored, as in Spark's sink: the column `headers` decides.",
}
SOURCE_TEXTS = {
    "subscribe": "Topics to read. This, `subscribePattern` or `assign` is required, and one alone.",
    "subscribePattern": "Topics to read, those that come later too: a regular expression that is found in their names. "
    "It is one of Python, which has no `\\p{...}`.",
    "assign": "Partitions to read. One that is not there is left out with a warning.",
    "startingOffsets": "Where the first batch of a new checkpoint, or a batch job, begins: all partitions must be "
    "given. A stream begins at `latest` unless told otherwise, a batch job at `earliest`.",
    "startingOffsetsByTimestamp": "The same by time: at the first record that is so late. It wins over "
    "`startingOffsets`.",
    "startingTimestamp": "The same for all partitions. It wins over both.",
    "startingOffsetsByTimestampStrategy": "Where a partition begins that has no record so late: nowhere, or at its "
    "end.",
    "endingOffsets": "Where a batch job ends: all partitions must be given. A stream refuses it.",
    "endingOffsetsByTimestamp": "The same by time: before the first record that is so late. It wins over "
    "`endingOffsets`. A stream refuses it.",
    "endingTimestamp": "The same for all partitions. It wins over both. Without effect on a stream.",
    "failOnDataLoss": "`false` logs a warning and goes on if records were deleted before they were read, or are "
    "beyond the end of a partition.",
    "minPartitions": "About so many tasks: partitions with more records are read by more of them.",
    "maxRecordsPerPartition": "Most offsets that a task reads.",
    "maxOffsetsPerTrigger": "Most offsets in a batch of a stream, over all partitions in proportion. "
    "Before Spark 4.2 the first batch after a start may have more, as Spark does not say where it begins. Without "
    "effect on a batch job.",
    "minOffsetsPerTrigger": "A batch of a stream waits for so many offsets, but for the first after a start. With "
    "`availableNow` nothing waits. Without effect on a batch job.",
    "maxTriggerDelay": "How long it waits at most.",
    "fetchOffset.numRetries": "How often the driver asks for offsets before it fails. While a query runs, each time "
    "waits up to five minutes for a broker; at its start 10 seconds, once.",
    "fetchOffset.retryIntervalMs": "Milliseconds between them.",
    "kafkaConsumer.pollTimeoutMs": "Milliseconds that a task waits for a broker, or for the next record, before it "
    "fails.",
    "includeHeaders": "Adds the column `headers`, which is null in rows of records without any.",
    "isolation": "`read_uncommitted` also reads what is not committed or was aborted, as Spark's own source does "
    "unless told otherwise. `kafka.isolation.level` is the same option.",
    "offsetGroup": "Group to which the offsets of a stream's finished batches are committed, so that tools show the "
    "lag. It does not decide what is read. The last batch of a query that ends is not committed: Spark says that a "
    "batch is finished when it plans the next.",
    "groupIdPrefix": "Accepted and without effect: the reader is in no consumer group, and needs no rights to one.",
}

INTRODUCTION = """\
<!-- Written by docs/generate_spark_options.py from the options of aioproducer/spark and the texts it has. -->

# Options of the Spark data source

For [`format("aioproducer")`](../how-to/spark.md).
Names are read in any case.
All options are checked on the driver, before any task: an unknown name, a wrong value, or an option that lacks another
or has no effect, is a `ConfigurationError`, which names the option and what is allowed.
"""
KAFKAS_SINK = """\
## Kafka's own, for a write

`kafka.<property>` takes the properties of a Kafka producer that are on the page [Configuration](configuration.md);
`kafka.bootstrap.servers` is required. Python's spelling means the same: `kafka.linger_ms` is `kafka.linger.ms`.
Defaults are those of that page, except {defaults}: a task sends at once all that it has.
{refused}
`kafka.sasl.token.provider` names what makes the tokens of OAUTHBEARER, in text:
[Tokens](../how-to/spark.md#tokens-oauthbearer).
Constant headers are options too: `header.<name>` adds a header to each record.
Spark gives the names of options in lower case, so the header's name is in lower case too; the column `headers` takes
any name.
"""
KAFKAS_SOURCE = """\
## Kafka's own, for a read

`kafka.bootstrap.servers` is required. Further properties are {known}.
TLS and SASL have the properties of a write: `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*`, in either
spelling.
These are for writes alone, since records are read with aiokafka, and a read refuses them: proxies, address maps
(`kafka.address.map`, `kafka.allowed.brokers`), a Kerberos keytab or principal (`kafka.sasl.kerberos.keytab`,
`kafka.sasl.kerberos.principal`; run `kinit` instead, whose ticket is used), and delegation tokens.

These are taken so that a job goes on as it is, and have no effect, as they change no row: properties of a producer, and
{ignored}.
A read creates no topic, even with `kafka.allow.auto.create.topics=true`.
{refused}"""
METRICS = """\
## Not supported

| of Spark's own source | why, and what instead |
|---|---|
| `metrics` in the progress of a query: `avgOffsetsBehindLatest` and so on | Spark takes metrics from sources written \
in Java or Scala alone (`ReportsSourceMetrics`; up to 4.3). `aioproducer.spark.offsets_behind_latest(source)` makes \
them, with the same names, of the `endOffset` and `latestOffset` that the progress has. |
| continuous processing, `trigger(continuous=...)` | Spark has it for sources written in Java or Scala alone. |
| `kafka.*` that name classes of Java | Nothing of it runs in Java. |
| the settings `spark.kafka.*` of the session, and its delegation tokens | Each read has its own options. |
"""


class Option(NamedTuple):
    """An option as `parse` takes it."""

    name: str
    allowed: str
    default: str


def render() -> str:
    """Return the whole page."""
    defaults = f"`batch.size` ({options.BATCH_SIZE}) and `linger.ms` ({options.LINGER_MS})"
    arguments = source_options._CONSUMER_ARGUMENTS  # noqa: SLF001  # the list of what is known
    known = _names(name for name in arguments if name != "bootstrap.servers")
    ignored, refused = _names(source_options.WITHOUT_EFFECT), _refused(source_options.NOT_READABLE)
    return "\n".join(
        [
            INTRODUCTION,
            f"## Write\n\n{_table(options.SinkOptions, SINK_TEXTS)}",
            KAFKAS_SINK.format(defaults=defaults, refused=_refused(options.NOT_SETTABLE)),
            f"## Read\n\n{_table(source_options.SourceOptions, SOURCE_TEXTS)}",
            KAFKAS_SOURCE.format(known=known, ignored=ignored, refused=refused),
            METRICS,
        ]
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`kafka.{name}`" for name in names)


def option_names(model: type) -> set[str]:
    """Return the options that a model takes, without the internal ones."""
    return {option.name for option in _options(model)}


def _table(model: type, texts: Mapping[str, str]) -> str:
    found = {option.name: option for option in _options(model)}
    lines = [
        f"| `{name}` | {found[name].allowed} | {found[name].default} | {text} |"
        for name, text in texts.items()
        if name in found
    ]
    return "\n".join(["| option | value | default | meaning |", "|---|---|---|---|", *lines, ""])


def _refused(instead: Mapping[str, str]) -> str:
    lines = "\n".join(f"| `kafka.{name}` | {text} |" for name, text in instead.items())
    return f"These are refused:\n\n| property | instead |\n|---|---|\n{lines}\n"


def _options(model: type) -> Iterator[Option]:
    """Yield the options that `parse` takes."""
    source = ast.parse(textwrap.dedent(inspect.getsource(model.parse)))  # type: ignore[attr-defined]
    for node in ast.walk(source):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="take"), args=[ast.Constant(value=str(name)), read, *rest], keywords=named
            ) if name not in INTERNAL:
                default = rest[0] if rest else named[0].value
                yield Option(name, _allowed(read), _default(default, read))


def _allowed(read: ast.expr) -> str:
    """Return what a reader takes: the text of its error."""
    try:
        eval(ast.unparse(read), {**vars(options), **vars(source_options)})("")  # noqa: S307  # of the package itself
    except ValueError as error:
        return _escaped(str(error))
    return ""


def _default(value: ast.expr, read: ast.expr) -> str:
    if isinstance(value, ast.Name) and value.id.isupper():
        value = ast.Constant({**vars(options), **vars(source_options)}[value.id])
    match value, read:
        case ast.Constant(value=bool(flag)), _:
            return f"`{str(flag).lower()}`"
        case ast.Constant(value=int(time)), ast.Name(id="duration_ms"):
            return f"`{time // 60_000}m`"
        case (ast.Constant(value=str(word)) | ast.Constant(value=int(word)), _) | (
            ast.Call(args=[ast.Constant(value=str(word)), *_]),
            _,
        ):
            return f"`{word}`"
    return ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
