"""Code of the user's around each record: what it costs inside the producer, beside the same work done by the caller."""

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import is_installed
from aioproducer.cli.benchmark.report import ScenarioReport

CONFLUENT = "confluent-kafka"
TEXT = "str, key, 2 headers"

VARIANTS = {
    "plain bytes": "plain",
    "partitioner": "partitioner",
    "interceptor": "interceptor",
    ".encode() by the caller": "text_by_caller",
    "value_serializer=str.encode": "text_by_serializer",
    "typed topic value=str": "text_by_typed_topic",
    TEXT: "text_key_and_headers",
    "orjson by the caller": "json_by_caller",
    "value_serializer=orjson.dumps": "json_by_serializer",
}
"""Variant -> what the worker does."""

RATES = (
    # variant, the caller's own work, what must be reached as a multiple of its rate, what is aimed at
    ("value_serializer=str.encode", ".encode() by the caller", 0.7, 0.9),
    ("typed topic value=str", ".encode() by the caller", 0.7, 0.9),
    ("value_serializer=orjson.dumps", "orjson by the caller", 0.8, 0.95),
)

COSTS = (("partitioner", 5.0, 3.0), ("interceptor", 8.0, 4.0))
"""Variant, and what its CPU per record may be, as a multiple of the plain one's; and what is aimed at."""


async def hooks(bench: Bench) -> ScenarioReport:
    """Measure each hook, what the caller would do instead, and confluent-kafka with the same work."""
    records = bench.sizes.hook_records
    contestants = [
        Contestant(OURS, variant, _job(bench, f"ours_with_hooks.{work}", records))
        for variant, work in VARIANTS.items()
        if "orjson" not in variant or is_installed("orjson")
    ]
    if is_installed(CONFLUENT):
        contestants.append(Contestant(CONFLUENT, TEXT, _job(bench, "confluent_text.enqueue", records)))
    rows, notes = await bench.measure(contestants)

    def rate(variant: str, client: str = OURS) -> float | None:
        return median_of(rows, client, variant, "records_per_s")

    def cost(variant: str) -> float | None:
        return median_of(rows, OURS, variant, "cpu_us_per_record")

    bars = [
        Bar(f"{variant}: rate / {by}", ratio(rate(variant), rate(by)), must, aim) for variant, by, must, aim in RATES
    ]
    bars.append(Bar(f"{TEXT}: rate / {CONFLUENT}", ratio(rate(TEXT), rate(TEXT, CONFLUENT)), 2.0, 3.0))
    bars += [
        Bar(f"{variant}: CPU / plain", ratio(cost(variant), cost("plain bytes")), must, aim, is_upper_limit=True)
        for variant, must, aim in COSTS
    ]
    return ScenarioReport("hooks", "Serializers, partitioner, interceptor, typed topic", rows, bars, notes)


def _job(bench: Bench, work: str, records: int) -> Job:
    return Job(work=work, records=records, warmup_records=bench.sizes.warmup_records)
