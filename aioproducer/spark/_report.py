"""Figures of a batch: what its tasks have counted, and the report about it.

The process that commits imports this one, and not what tasks need to send.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aioproducer.spark._process_log import process_log


class PartitionRows(NamedTuple):
    """Rows that a task has sent to a partition of Kafka."""

    topic: str
    partition: int
    rows: int


class TaskCounts(NamedTuple):
    """Figures of what a task has sent."""

    rows: int = 0
    bytes: int = 0
    """As the batches went to the brokers, compressed where asked for."""
    batches: int = 0
    retries: int = 0
    skipped: int = 0
    """Rows over a size limit that `onOversize=skip` has left out."""
    partitions: tuple[PartitionRows, ...] = ()


def batch_report(
    tasks: Sequence[TaskCounts], *, query: str, batch: int | None, transactions: int, commit_s: float
) -> dict[str, object]:
    """Return the figures of a batch: rows, bytes, batches, retries in all and per task; rows per partition of Kafka."""
    figures = [{name: count for name, count in task._asdict().items() if name != "partitions"} for task in tasks]
    totals = {name: sum(each[name] for each in figures) for name in TaskCounts._fields if name != "partitions"}
    return {
        "query": query,
        "batch": batch,
        **totals,
        "partitions": _rows_by_partition(tasks),
        "tasks": figures,
        "transactions": transactions,
        "commit_seconds": round(commit_s, 3),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _rows_by_partition(tasks: Sequence[TaskCounts]) -> dict[str, dict[str, int]]:
    """Return rows in the form in which Spark writes offsets: {"orders": {"0": 23}}."""
    found: Counter[tuple[str, int]] = Counter()
    for task in tasks:
        for topic, partition, rows in task.partitions:
            found[topic, partition] += rows
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), rows in sorted(found.items()):
        topics.setdefault(topic, {})[str(partition)] = rows
    return topics


def publish(report: Mapping[str, object], path: str | None) -> None:
    """Log a line, and append a line of JSON to the file if there is one.

    A report that cannot be written is logged and fails nothing: the rows are in Kafka.
    """
    log = process_log()
    log.info(
        "%s, batch %s: %s rows in %s batches, %s bytes, %s retries, %s transactions, committed in %s s",
        *(report[name] for name in ("query", "batch", "rows", "batches", "bytes", "retries", "transactions")),
        report["commit_seconds"],
    )
    if report["skipped"]:
        log.warning("%s, batch %s: %s rows too large were skipped", *(report[n] for n in ("query", "batch", "skipped")))
    if path is None:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
    except OSError as error:
        log.warning("report=%s cannot be written: %s", path, error)
