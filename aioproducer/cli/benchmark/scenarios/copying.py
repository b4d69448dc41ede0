"""Consume, transform, produce: what is left of a consumer's speed when everything is processed exactly once?"""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.sizes import LARGE_TRANSACTION

AIOKAFKA = "aiokafka"
VARIANT = f"at most {LARGE_TRANSACTION:,} a transaction"


async def copying(bench: Bench) -> ScenarioReport:
    """Measure both loops over the same consumer; without it there is nothing to measure."""
    clients = {OURS: "copying.ours", AIOKAFKA: "copying.aiokafka"} if is_installed(AIOKAFKA) else {}
    contestants = [
        Contestant(
            client,
            VARIANT,
            Job(work=work, records=bench.sizes.copied_records[client], per_transaction=LARGE_TRANSACTION),
        )
        for client, work in clients.items()
    ]
    rows, notes = await bench.measure(contestants)
    ours, aiokafka = (median_of(rows, client, VARIANT, "records_per_s") for client in (OURS, AIOKAFKA))
    bars = [Bar("consume-transform-produce: rate / aiokafka", ratio(ours, aiokafka), 3.0, None)]
    return ScenarioReport("copying", "Consume, transform, produce, exactly once", rows, bars, notes)
