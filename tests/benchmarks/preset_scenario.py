"""The scenarios `presets` and `mock`: the presets of `ProducerConfig` beside the defaults, and `MockProducer`."""

from dataclasses import replace

from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.job import Job
from tests.benchmarks.report import OURS, Comparison, ScenarioReport, median_of, ratio

ENQUEUED = {
    # variant -> work
    "defaults": "ours_with_presets.enqueue_defaults",
    "throughput()": "ours_with_presets.enqueue_throughput",
    "durable()": "ours_with_presets.enqueue_durable",
}
CALLED_BACK = {
    "defaults, each 2 ms": "ours_with_presets.callbacks_defaults",
    "low_latency(), each 2 ms": "ours_with_presets.callbacks_low_latency",
}
RATIOS = {
    # preset -> figures, relative to the defaults
    "throughput()": {"rate": "records_per_s", "CPU": "cpu_us_per_record", "bytes sent": "sent_bytes_per_record"},
    "durable()": {"rate": "records_per_s", "CPU": "cpu_us_per_record"},
    "low_latency(), each 2 ms": {"p50": "p50_us", "p99": "p99_us"},
}


async def presets(bench: Bench) -> ScenarioReport:
    """Measure JSON documents of about 200 bytes: in a loop, or one each 2 ms, from the call to its callback."""
    many = Job(work="", records=bench.size(1_000_000, 20_000), warmup_records=bench.size(20_000, 1_000))
    few = Job(work="", records=bench.size(2_000, 100), warmup_records=bench.size(100, 10))
    rows = await bench.measure(
        [
            Contestant(OURS, variant, replace(job, work=work))
            for works, job in ((ENQUEUED, many), (CALLED_BACK, few))
            for variant, work in works.items()
        ]
    )
    comparisons = []
    for variant, figures in RATIOS.items():
        defaults = "defaults, each 2 ms" if variant in CALLED_BACK else "defaults"
        for name, figure in figures.items():
            value = ratio(median_of(rows, OURS, variant, figure), median_of(rows, OURS, defaults, figure))
            comparisons.append(Comparison(f"{variant}: {name} / defaults", value))
    return ScenarioReport("presets", "JSON documents with the presets of ProducerConfig", rows, comparisons)


async def mock(bench: Bench) -> ScenarioReport:
    """Measure `MockProducer.send` beside `enqueue` to the broker."""
    job = Job(work="", records=bench.size(1_000_000, 20_000), warmup_records=bench.size(5_000, 1_000))
    works = {"Producer.enqueue": "ours.enqueue", "MockProducer.send": "ours_mock.send"}
    rows = await bench.measure([Contestant(OURS, variant, replace(job, work=work)) for variant, work in works.items()])
    rate = ratio(*(median_of(rows, OURS, variant) for variant in reversed(works)))
    return ScenarioReport(
        "mock",
        "MockProducer, which sends nothing",
        rows,
        [Comparison("MockProducer.send: rate / Producer.enqueue", rate)],
    )
