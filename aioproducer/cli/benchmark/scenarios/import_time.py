"""What it costs to import the package, in a fresh interpreter each time."""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench
from aioproducer.cli.benchmark.figures import Row, median_of, ratio
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.worker_process import python_process

VARIANT = "fresh interpreter"
PROGRAM = """
import sys
from time import perf_counter as now
sys.dont_write_bytecode = False
start = now()
import {module}
print((now() - start) * 1e3)
"""


async def import_time(bench: Bench) -> ScenarioReport:
    """Measure ours and aiokafka in turn."""
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
    async with python_process("-c", PROGRAM.format(module=module)) as process:
        printed, _ = await process.communicate()
    return float(printed)
