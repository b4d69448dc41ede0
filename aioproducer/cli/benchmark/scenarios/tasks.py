"""Many tasks that each await their record: does the number of those who wait cost anything?"""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport

FEW, SOME, MANY = 100, 5_000, 10_000
"""How many tasks; `SOME` is where aiokafka is measured too."""


async def tasks(bench: Bench) -> ScenarioReport:
    """Measure ours with few and many tasks, and beside aiokafka."""
    contestants = [
        Contestant(OURS, _variant(number), _job(bench, "ours", number, bench.sizes.task_records))
        for number in (FEW, SOME, MANY)
    ]
    if is_installed("aiokafka"):
        job = _job(bench, "aiokafka", SOME, bench.sizes.aiokafka_task_records)
        contestants.append(Contestant("aiokafka", _variant(SOME), job))
    rows, notes = await bench.measure(contestants)
    few, some, many = (median_of(rows, OURS, _variant(number), "records_per_s") for number in (FEW, SOME, MANY))
    aiokafka = median_of(rows, "aiokafka", _variant(SOME), "records_per_s")
    bars = [
        Bar(f"rate of {MANY:,} tasks / of {FEW} tasks", ratio(many, few), 0.9, 1.0),
        Bar(f"{SOME:,} tasks: rate / aiokafka", ratio(some, aiokafka), None, 50.0),
    ]
    return ScenarioReport("tasks", "Tasks that each await send in a loop", rows, bars, notes)


def _job(bench: Bench, client: str, number: int, records: int) -> Job:
    shared = max(1, records // number) * number
    return Job(work=f"{client}.await_sends", records=shared, warmup_records=bench.sizes.warmup_records, tasks=number)


def _variant(number: int) -> str:
    return f"{number:,} tasks"
