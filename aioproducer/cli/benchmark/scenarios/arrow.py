"""Rows of Arrow batches: what appending one costs beside a list of bytes, and sending one beside `await enqueue`."""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport

TUNED = 262_144
"""Batch size of the second variant that sends, in bytes."""

VARIANTS = {
    "append: send_many": ("ours_with_arrow.append_lists", None),
    "append: send_arrow": ("ours_with_arrow.append_batches", None),
    "append with keys: send_many": ("ours_with_arrow.append_lists_with_keys", None),
    "append with keys: send_arrow": ("ours_with_arrow.append_batches_with_keys", None),
    "defaults: await enqueue": ("ours.enqueue", None),
    "defaults: send_arrow": ("ours_with_arrow.send_batches", None),
    "256 KiB: await enqueue": ("ours.enqueue", TUNED),
    "256 KiB: send_arrow": ("ours_with_arrow.send_batches", TUNED),
}
"""Variant -> what the worker does, and the batch size."""

COSTS = (
    # how rows go in, instead of what, what CPU per row may be as a multiple of that, what is aimed at
    ("append: send_arrow", "append: send_many", 0.33, 0.17),
    ("append with keys: send_arrow", "append with keys: send_many", 0.6, 0.4),
    ("defaults: send_arrow", "defaults: await enqueue", 0.5, 0.35),
    ("256 KiB: send_arrow", "256 KiB: await enqueue", 0.5, 0.35),
)


async def arrow(bench: Bench) -> ScenarioReport:
    """Measure each way; without pyarrow there is nothing to measure."""
    contestants = [
        Contestant(OURS, variant, _job(bench, work, batch_size))
        for variant, (work, batch_size) in VARIANTS.items()
        if is_installed("pyarrow")
    ]
    rows, notes = await bench.measure(contestants)

    def cost(variant: str) -> float | None:
        return median_of(rows, OURS, variant, "cpu_us_per_record")

    bars = [
        Bar(f"{variant}: CPU / {of}", ratio(cost(variant), cost(of)), must, aim, is_upper_limit=True)
        for variant, of, must, aim in COSTS
    ]
    return ScenarioReport("arrow", "Rows of Arrow batches", rows, bars, notes)


def _job(bench: Bench, work: str, batch_size: int | None) -> Job:
    return Job(
        work=work,
        partitions=64 if work.endswith(("append_lists", "append_batches")) else 4,  # so that no batch gets full
        records=bench.sizes.hook_records,
        warmup_records=bench.sizes.warmup_records,
        batch_size=batch_size,
    )
