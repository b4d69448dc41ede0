"""Very many partitions with one record each in turn: does the cost of a record grow with what exists?"""

from dataclasses import replace

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.brokers import embedded_broker
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.report import ScenarioReport

FEW = 4


async def partitions(bench: Bench) -> ScenarioReport:
    """Measure ours on the embedded cluster, every record a batch of its own."""
    many = bench.sizes.many_partitions
    contestants = [Contestant(OURS, _variant(number), _job(bench, number)) for number in (FEW, many)]
    async with embedded_broker() as embedded:
        rows, notes = await replace(bench, broker=embedded).measure(contestants)
    cost_of_few, cost_of_many = (median_of(rows, OURS, _variant(number), "cpu_us_per_record") for number in (FEW, many))
    bars = [
        Bar(f"CPU at {many:,} partitions / at {FEW}", ratio(cost_of_many, cost_of_few), 1.5, 1.2, is_upper_limit=True)
    ]
    notes.append("on the embedded cluster, in a process of its own")
    return ScenarioReport("partitions", "One record to each partition in turn, batch_size=0", rows, bars, notes)


def _job(bench: Bench, number: int) -> Job:
    sizes = bench.sizes
    return Job(
        work="ours.enqueue_in_turn",
        partitions=number,
        records=sizes.spread_records,
        warmup_records=sizes.warmup_records,
        batch_size=0,
    )


def _variant(number: int) -> str:
    return f"{number:,} partitions"
