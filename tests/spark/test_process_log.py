"""What the data source logs in a process of Spark's reaches its standard error."""

import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.spark._process_log import process_log

ROOT = Path(__file__).parents[2]
PROGRAM = """
import logging, sys
from aioproducer._logs import event_log
from aioproducer.spark._process_log import process_log

if sys.argv[1] == "configured":
    logging.basicConfig(format="own %(message)s")
event_log("client").warning("connection_lost")  # as of a request to the cluster
for _ in range(2):
    process_log().warning("rows are gone")
process_log().info("10 rows")
logging.getLogger("aioproducer").warning("of the library")
"""


def logged(kind: str) -> list[str]:
    """Return the lines on standard error."""
    program = [sys.executable, "-c", PROGRAM, kind]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_lines_reach_standard_error_after_an_event_log() -> None:
    """Which silences the rest of the package, as in an application."""
    words = [line.partition(" aioproducer.spark: ")[2] for line in logged("silent")]
    assert words == ["rows are gone", "rows are gone", "10 rows"]


def test_lines_go_to_configured_handlers_alone() -> None:
    lines = [line for line in logged("configured") if "client_id" not in line]
    assert lines == ["own rows are gone", "own rows are gone", "own of the library"]


def test_log_of_a_configured_process_gets_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    process_log().warning("rows are gone")
    assert caplog.messages == ["rows are gone"]
    assert process_log().handlers == []
