"""A broker that stands still while ten times the buffer is offered: does memory hold, and does everything arrive?"""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import find_row
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.report import ScenarioReport

TIMES_THE_BUFFER = 10
ALLOWANCE_MIB = 64
"""What resident memory may grow by above `buffer_memory`."""

TASKS = 100

WARMUP_RECORDS = 100
"""Few: memory that the warm-up took would not show as growth."""

SMALL, LARGE = 100, 10_240

VARIANTS = {
    # variant -> work, bytes of a value, whether all are offered before the broker goes on, so that some are refused
    "await enqueue, 100 B": ("enqueue_stalled", SMALL, False),
    "send without await, 100 B": ("send_stalled", SMALL, True),
    "send without await, 10 KiB": ("send_stalled", LARGE, True),
}


async def stalled(bench: Bench) -> ScenarioReport:
    """Measure ours; that every accepted record arrives is checked with the end offsets, as always."""
    title = f"Broker stopped for {bench.sizes.stall_s:.0f} s, {TIMES_THE_BUFFER} times the buffer offered"
    if bench.broker.stall is None:
        return ScenarioReport("stalled", title, notes=[f"left out: {bench.broker.name} is not ours to stop"])
    contestants = [
        Contestant(
            OURS,
            variant,
            _job(bench, work, value_bytes),
            stall_s=bench.sizes.stall_s,
            offers_all_to_stalled=must_refuse,
        )
        for variant, (work, value_bytes, must_refuse) in VARIANTS.items()
    ]
    rows, notes = await bench.measure(contestants, rounds=1)
    limit_mib = bench.sizes.stall_buffer / 2**20 + ALLOWANCE_MIB
    bars = []
    for variant, (_, _, must_refuse) in VARIANTS.items():
        row = find_row(rows, OURS, variant)
        growth, refused = (row.median("rss_growth_mib"), row.median("refused")) if row else (None, None)
        bars.append(Bar(f"{variant}: RSS growth", growth, limit_mib, unit="MiB", is_upper_limit=True))
        bars.append(
            Bar(
                f"{variant}: refused",
                refused,
                1.0 if must_refuse else 0.0,
                unit="records",
                is_upper_limit=not must_refuse,
            )
        )
    return ScenarioReport("stalled", title, rows, bars, notes)


def _job(bench: Bench, work: str, value_bytes: int) -> Job:
    buffer_memory = bench.sizes.stall_buffer
    return Job(
        work=f"ours_under_stress.{work}",
        records=TIMES_THE_BUFFER * buffer_memory // value_bytes // TASKS * TASKS,
        warmup_records=WARMUP_RECORDS,
        value_bytes=value_bytes,
        buffer_memory=buffer_memory,
        tasks=TASKS,
    )
