"""`aioproducer bench` on the embedded cluster, short: every scenario runs, and every count is the broker's."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from aioproducer.cli.main import app; app()", "bench"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", ["tasks", "latency", "transactions", "copying", "partitions", "stalled", "loop-lag", "import"]
)
def test_scenario_runs_on_the_embedded_cluster(scenario: str, tmp_path: Path) -> None:
    """With figures for ours, and every bar that needs no peer measured."""
    file = tmp_path / "bench.json"
    ended = run("--embedded", "--quick", "--only", scenario, "--client", "aioproducer", "--json", str(file))

    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(file.read_text("utf-8"))["scenarios"]
    assert found["name"] == scenario
    assert {row["client"] for row in found["rows"]} == {"aioproducer"}


@pytest.mark.slow
def test_clients_are_measured_side_by_side(tmp_path: Path) -> None:
    """With ratios: confluent-kafka is there, the others are not asked for."""
    file = tmp_path / "bench.json"
    clients = ["--client", "aioproducer", "--client", "confluent-kafka", "--client", "raw socket"]

    ended = run("--embedded", "--quick", "--only", "enqueue", *clients, "--json", str(file))

    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(file.read_text("utf-8"))["scenarios"]
    measured = {bar["measure"] for bar in found["bars"] if bar["value"] is not None}
    assert "defaults: rate / confluent-kafka" in measured
    assert "256 KiB: CPU / confluent-kafka" in measured
    assert "256 KiB: rate / raw socket" in measured
    assert "defaults: rate / aiokafka" not in measured


@pytest.mark.slow
def test_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    """One line, and a usage error: a whole run takes a quarter of an hour."""
    file = tmp_path / "nowhere" / "bench.json"

    ended = run("--embedded", "--json", str(file))

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"aioproducer: --json {file}: No such file or directory\n"


@pytest.mark.slow
def test_interrupted_bench_leaves_the_file_of_an_earlier_one_alone(tmp_path: Path) -> None:
    """It says how far it came, prints that much, and ends as whoever was interrupted does."""
    file = tmp_path / "bench.json"
    file.write_text("{}", "utf-8")
    command = [*COMMAND, "--embedded", "--quick", "--only", "import", "--only", "stalled", "--json", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while process.stderr.readline() != "--- stalled\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, "import" in output, file.read_text("utf-8")) == (130, True, "{}")
    assert errors.endswith("aioproducer: interrupted after 1 of 2 scenarios; no file was written\n")


@pytest.mark.slow
def test_disk_that_is_full_costs_no_figures() -> None:
    """They have been printed; what could not be written is told."""
    ended = run("--embedded", "--quick", "--only", "import", "--client", "aioproducer", "--json", "/dev/full")

    assert (ended.returncode, "import" in ended.stdout) == (1, True)
    assert ended.stderr.endswith("failed: --json /dev/full: No space left on device; the figures are above\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, names",
    [
        (["--only", "everything"], "--only everything: must be one of enqueue | "),
        (["-b", "127.0.0.1"], "it has no port"),
        (["--client", "nobody"], "--client nobody: must be one of aioproducer | "),
        (["-b", "127.0.0.1:1", "--embedded"], "--bootstrap-server and --embedded"),
    ],
)
def test_bad_argument_is_one_line(arguments: list[str], names: str) -> None:
    """It names the argument, and nothing is started."""
    ended = run(*arguments)

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert names in ended.stderr
