"""Every allocation of the native send path fails once: the call says so, nothing leaks, the next record goes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded import compiled

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFUSING = {"append_with_headers", "append_that_grows_the_batch", "append_of_a_large_record", "seal", "split"}
"""Steps that ask the C library for memory."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library is preloaded as on Linux")


def swept(kind: str, **environment: str) -> dict[str, dict[str, dict[str, int]]]:
    command = [sys.executable, str(HERE / "allocation_faults.py"), kind]
    package = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": package, **environment}
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, dict[str, dict[str, int]]] = json.loads(done.stdout)
    return report


@pytest.fixture
def faulty_malloc(tmp_path: Path) -> Path:
    return compiled(HERE / "allocation_faults.c", tmp_path)


@pytest.mark.slow
def test_failed_c_allocation_is_an_error_of_the_call(faulty_malloc: Path) -> None:
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer has its own malloc, which must be the first")

    report = swept("native", LD_PRELOAD=str(faulty_malloc))

    assert {name for name, sums in report["steps"].items() if sums["refused"]} >= REFUSING
    for sums in report["steps"].values():
        assert sums == {**sums, "sent_and_refused": 0, "lost": 0, "bytes_missing": 0}
    assert report["left"] == 0


@pytest.mark.slow
def test_memory_that_python_refuses_is_an_error_of_the_call() -> None:
    """MemoryError and nothing else comes out of the native modules; a refused record is not sent."""
    pytest.importorskip("_testcapi", reason="this interpreter was built without _testcapi")

    report = swept("python")

    assert len(report["steps"]) > len(REFUSING)
    assert all(sums["refused"] for sums in report["steps"].values())
    assert not any(sums.get("sent_and_refused") or sums.get("lost") for sums in report["steps"].values())
