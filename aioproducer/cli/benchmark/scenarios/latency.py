"""One task that awaits one record after another on an idle producer: how long does a record take?"""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.steadiness import RAW_SOCKET

LINGER_5, LINGER_0 = "linger 5 ms", "linger 0"


async def latency(bench: Bench) -> ScenarioReport:
    """Measure ours with the linger it has everywhere, a raw socket, and aiokafka without a linger."""
    contestants = [
        Contestant(OURS, LINGER_5, _job(bench, "ours.latency")),
        Contestant(RAW_SOCKET, LINGER_0, _job(bench, "raw_socket.latency")),
    ]
    if is_installed("aiokafka"):
        contestants.append(Contestant("aiokafka", LINGER_0, _job(bench, "aiokafka.latency", linger_ms=0)))
    rows, notes = await bench.measure(contestants)
    ours, raw = median_of(rows, OURS, LINGER_5, "p50_us"), median_of(rows, RAW_SOCKET, LINGER_0, "p50_us")
    above = None if ours is None or raw is None else ours - raw
    bars = [Bar("p50 above the raw socket's", above, 150.0, 80.0, "us", is_upper_limit=True)]
    return ScenarioReport("latency", "One task awaiting one record after another", rows, bars, notes)


def _job(bench: Bench, work: str, *, linger_ms: int = 5) -> Job:
    # a hundred records are enough to warm up: they are sent one by one
    return Job(work=work, records=bench.sizes.latency_records, warmup_records=100, linger_ms=linger_ms)
