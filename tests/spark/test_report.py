"""The report of a batch: a line in the log, and one of JSON in a file."""

import json
import logging
from pathlib import Path

import pytest

from aioproducer.spark._report import batch_report, publish
from aioproducer.spark._task import PartitionRows, TaskCounts

FULL = TaskCounts(rows=1_000, bytes=5_000, batches=4, retries=7, partitions=(PartitionRows("t", 0, 1_000),))
CUT = FULL._replace(skipped=3)


def report_of(*tasks: TaskCounts) -> dict[str, object]:
    return batch_report(tasks, query="stream q", batch=5, transactions=2, commit_s=0.0123)


def test_line_of_a_batch_has_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    """Retries too; none warns."""
    with caplog.at_level(logging.INFO, "aioproducer.spark"):
        publish(report_of(FULL, FULL), None)
    assert caplog.messages == [
        "stream q, batch 5: 2000 rows in 8 batches, 10000 bytes, 14 retries, 2 transactions, committed in 0.012 s"
    ]


def test_rows_that_were_skipped_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Also where no report is asked for."""
    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        publish(report_of(FULL, CUT), None)
    assert caplog.messages == ["stream q, batch 5: 3 rows too large were skipped"]


def test_file_gets_a_line_for_each_batch(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    for _ in range(2):
        publish(report_of(FULL, CUT), str(file))
    first, second = map(json.loads, file.read_text("utf-8").splitlines())
    assert first == second
    assert (first["rows"], first["skipped"], first["transactions"]) == (2_000, 3, 2)
    assert first["partitions"] == {"t": {"0": 2_000}}


def test_file_that_cannot_be_written_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rows are in Kafka."""
    publish(report_of(FULL), str(tmp_path / "nowhere" / "report"))
    assert f"report={tmp_path}/nowhere/report cannot be written" in caplog.text
