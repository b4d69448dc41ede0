"""The enqueue loop: as many records as can be acknowledged, by every client there is; and what a record costs."""

from collections.abc import Sequence

from aioproducer.cli.benchmark.bars import Bar
from aioproducer.cli.benchmark.bench_run import OURS, Bench, Contestant
from aioproducer.cli.benchmark.figures import Row, median_of, ratio
from aioproducer.cli.benchmark.job import Job
from aioproducer.cli.benchmark.machine import MODULE_OF, is_installed
from aioproducer.cli.benchmark.report import ScenarioReport
from aioproducer.cli.benchmark.steadiness import RAW_SOCKET

JAVA = "Java producer"

WORK = {
    OURS: "ours.enqueue",
    RAW_SOCKET: "raw_socket.enqueue",
    JAVA: "java.enqueue",
    "confluent-kafka": "confluent.enqueue_with_callback",
    "confluent-kafka, no callback": "confluent.enqueue",
    "aiokafka": "aiokafka.enqueue_with_results",
    "aiokafka, no results": "aiokafka.enqueue",
    "kafka-python": "kafka_python.enqueue",
}
"""Client -> what its worker does."""

VARIANTS = {"defaults": None, "256 KiB": 262_144}
"""Variant -> every client's batch size; `None`: its own default."""

RATES = (
    # client, what must be reached as a multiple of its rate, what is aimed at
    ("confluent-kafka", 3.0, 5.0),
    ("aiokafka", 20.0, 40.0),
    (JAVA, 2.0, 5.0),
    (RAW_SOCKET, None, 0.7),
)


async def enqueue(bench: Bench) -> ScenarioReport:
    """Measure every client that is there, under both variants, in the same rounds."""
    clients = [client for client in WORK if _is_there(bench, client)]
    contestants = [
        Contestant(client, variant, _job(bench, client, batch_size))
        for variant, batch_size in VARIANTS.items()
        for client in clients
    ]
    rows, notes = await bench.measure(contestants)
    notes += [f"{client} is not on this machine" for client in WORK if client not in clients]
    bars = [bar for variant in VARIANTS for bar in _bars(rows, variant)]
    return ScenarioReport("enqueue", "Enqueue in a loop, then flush: acknowledged records", rows, bars, notes)


def _is_there(bench: Bench, client: str) -> bool:
    if client == JAVA:
        return bool(bench.java_jars)
    library = client.partition(",")[0]
    return library not in MODULE_OF or is_installed(library)


def _job(bench: Bench, client: str, batch_size: int | None) -> Job:
    sizes = bench.sizes
    return Job(
        work=WORK[client],
        records=sizes.enqueue_records[client],
        warmup_records=sizes.java_warmup_records if client == JAVA else sizes.warmup_records,
        batch_size=batch_size,
    )


def _bars(rows: Sequence[Row], variant: str) -> list[Bar]:
    ours = median_of(rows, OURS, variant, "records_per_s")
    bars = [
        Bar(f"{variant}: rate / {client}", ratio(ours, median_of(rows, client, variant, "records_per_s")), must, aim)
        for client, must, aim in RATES
    ]
    cost = median_of(rows, OURS, variant, "cpu_us_per_record")
    others = median_of(rows, "confluent-kafka", variant, "cpu_us_per_record")
    bars.append(Bar(f"{variant}: CPU / confluent-kafka", ratio(cost, others), 1 / 3, 1 / 6, is_upper_limit=True))
    return bars
