"""The scenario `observed`: what production has around this producer, beside the libraries that do it, or without it."""

from dataclasses import replace

from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.brokers import embedded_broker
from tests.benchmarks.job import Job
from tests.benchmarks.report import OURS, Comparison, ScenarioReport, median_of, ratio

CPU = "cpu_us_per_record"
PLAIN, SCRAPED, TRACED, AVRO, EXPLAIN = "plain", "scraped each second", "one span per record", "Avro", "explain()"
OPENTELEMETRY, FASTAVRO = "OpenTelemetry alone", "fastavro alone"
WORKS = {
    # client, variant -> work, records of a full run, of a quick run
    (OURS, PLAIN): ("plain", 4_000_000, 20_000),
    (OURS, SCRAPED): ("scraped", 4_000_000, 20_000),
    (OURS, TRACED): ("traced", 100_000, 2_000),
    (OPENTELEMETRY, TRACED): ("traces_alone", 100_000, 2_000),
    (OURS, AVRO): ("avro", 500_000, 5_000),
    (FASTAVRO, AVRO): ("avro_alone", 500_000, 5_000),
}


async def observed(bench: Bench) -> ScenarioReport:
    """Measure what it costs to be scraped, traced, explained, and to write Avro, on the embedded cluster."""
    many = bench.size(10_000, 500)

    def job(work: str, full: int, quick: int) -> Job:
        return Job(work=f"ours_observed.{work}", records=bench.size(full, quick), warmup_records=bench.size(5_000, 500))

    contestants = [Contestant(client, variant, job(*work)) for (client, variant), work in WORKS.items()]
    explaining = replace(job("explain", 20, 3), partitions=many)
    contestants.append(Contestant(OURS, EXPLAIN, explaining))
    async with embedded_broker() as embedded:
        rows = await replace(bench, broker=embedded).measure(contestants)

    def of_cpu(variant: str, alone: str) -> float | None:
        return ratio(median_of(rows, OURS, variant, CPU), median_of(rows, alone, variant, CPU))

    explained, passed = (median_of(rows, OURS, EXPLAIN, figure) for figure in ("explain_us", "pass_us"))
    comparisons = [
        Comparison(f"{SCRAPED}: rate / {PLAIN}", ratio(median_of(rows, OURS, SCRAPED), median_of(rows, OURS, PLAIN))),
        Comparison(f"{TRACED}: CPU / {OPENTELEMETRY}", of_cpu(TRACED, OPENTELEMETRY)),
        Comparison(f"{AVRO}: CPU / {FASTAVRO}", of_cpu(AVRO, FASTAVRO)),
        Comparison(f"{EXPLAIN} of {many:,} partitions / one pass in Python", ratio(explained, passed)),
    ]
    notes = ["on the embedded cluster, in a process of its own", "spans and metrics of the SDK, without an exporter"]
    return ScenarioReport("observed", "Metrics, traces, Avro, explain()", rows, comparisons, notes)
