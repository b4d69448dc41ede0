"""The event loop beside the producer: how late is a task that sleeps, while half the maximum rate is sent?"""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.report import ScenarioReport

SLEEPER = "a process that only sleeps"
VARIANT = "5 ms probe"


async def loop_lag(bench: Bench) -> ScenarioReport:
    """Measure the probe beside ours, and alone."""
    seconds = bench.sizes.lag_s
    contestants = [
        Contestant(OURS, VARIANT, Job(work="ours_under_stress.lag_at_half_rate", seconds=seconds)),
        Contestant(SLEEPER, VARIANT, Job(work="ours_under_stress.lag_of_sleeper", seconds=seconds)),
    ]
    rows, notes = await bench.measure(contestants)
    ours, sleeper = (median_of(rows, client, VARIANT, "lag_p99_ms") for client in (OURS, SLEEPER))
    above = None if ours is None or sleeper is None else ours - sleeper
    bars = [Bar("p99 above that of the sleeping process", above, 5.0, unit="ms", is_upper_limit=True)]
    return ScenarioReport("loop-lag", "Event-loop lag at half the maximum rate", rows, bars, notes)
