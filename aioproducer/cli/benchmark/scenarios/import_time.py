"""What it costs to import the package, in a fresh interpreter each time."""

import sys

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench
from aioproducer.cli.benchmark.figures import Row, median_of, ratio
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.worker_process import WorkerError, failure_text, python_process
from aioproducer.cli.python_child import PACKAGE_ROOT

VARIANT = "fresh interpreter"
PROGRAM = """
import sys
sys.path.append({root!r})
from time import perf_counter as now
sys.dont_write_bytecode = False
start = now()
import {module}
print((now() - start) * 1e3)
"""


async def import_time(bench: Bench) -> ScenarioReport:
    """Measure ours and aiokafka in turn.

    Raises:
        WorkerError: the module cannot be imported; with the reason.
    """
    modules = [OURS, *(["aiokafka"] if is_installed("aiokafka") else [])]
    rows = [Row(module, VARIANT) for module in modules if bench.wants(module)]
    for row in rows:
        await _import_ms(row.client)  # compiles what has not been imported before
    for _ in range(bench.sizes.import_rounds):
        for row in rows:
            row.add({"import_ms": await _import_ms(row.client)})
    ours, aiokafka = (median_of(rows, module, VARIANT, "import_ms") for module in (OURS, "aiokafka"))
    bars = [Bar("import time / aiokafka", ratio(ours, aiokafka), 1.3, 1.0, is_upper_limit=True)]
    return ScenarioReport("import", "Import of the package", rows, bars)


async def _import_ms(module: str) -> float:
    program = PROGRAM.format(root=PACKAGE_ROOT, module=module)
    async with python_process(sys.executable, "-P", "-c", program) as process:
        printed, said = await process.communicate()
    if process.returncode != 0:
        raise WorkerError(failure_text(f"import of {module} failed", said))
    return float(printed)
