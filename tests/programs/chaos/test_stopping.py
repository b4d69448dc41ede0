"""A run of chaos that is stopped leaves nothing running, and says what it has shown until then."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[3]
BROKERS_AND_SENDERS = 6
START_S = 90.0


def wait_until_sending(run: subprocess.Popen[str]) -> list[psutil.Process]:
    give_up = time.monotonic() + START_S
    while len(children := psutil.Process(run.pid).children()) < BROKERS_AND_SENDERS:
        assert time.monotonic() < give_up, f"only {children}"
        assert run.poll() is None
        time.sleep(0.2)
    return children


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM, signal.SIGKILL]
)
def test_stopped_run_leaves_no_process(how: signal.Signals, tmp_path: Path) -> None:
    arguments = ["--cells=1", "--cell-seconds=60", "--faults=delay", "--rate=100", f"--folder={tmp_path / 'cells'}"]
    command = [sys.executable, "-m", "tests.programs.chaos", *arguments]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    children = wait_until_sending(run)

    run.send_signal(how)
    printed, _ = run.communicate(timeout=60)

    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert ("0 cells" in printed) is (how is not signal.SIGKILL)
