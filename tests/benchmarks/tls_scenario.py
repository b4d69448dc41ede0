"""The scenario `tls`: this producer over TLS beside its plaintext, and beside confluent-kafka over TLS."""

from collections.abc import Sequence
from dataclasses import replace

from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.kafka_jars import TESTED_VERSIONS
from tests.benchmarks.bench_run import Bench, Contestant
from tests.benchmarks.brokers import REAL_PROPERTIES, BrokerUnderTest
from tests.benchmarks.job import Job
from tests.benchmarks.report import OURS, Comparison, Row, ScenarioReport, median_of, ratio

CONFLUENT, OPENSSL = "confluent-kafka", "OpenSSL alone"
CPU = "cpu_us_per_record"
WORKS = {"uvloop": "enqueue", "asyncio": "enqueue_on_asyncio", "busy thread": "enqueue_beside_a_busy_thread"}
SIZES = {1_000: (1_000_000, 30_000), 100: (3_000_000, 50_000)}
"""Bytes of a value -> records of a full run, of a quick one."""


async def tls(bench: Bench) -> ScenarioReport:
    """Measure rate and CPU of TLS against plaintext, on a real broker that has a listener for each."""
    title = "Enqueue in a loop, then flush, over TLS and plaintext"
    async with KafkaCluster(
        TESTED_VERSIONS[0], properties=REAL_PROPERTIES, security=ClusterSecurity(), performance=True
    ) as kafka:
        over_tls = kafka.client_options("SSL")
        secured = str(over_tls["bootstrap_servers"]), str(over_tls["ssl_truststore_location"])
        measured = replace(bench, broker=BrokerUnderTest("real Kafka with TLS", kafka.bootstrap_servers))
        contestants = _contestants(bench, *secured)
        await measured.warm_up(*(contestant.job for contestant in contestants[:2]))
        rows = await measured.measure(contestants)
    return ScenarioReport("tls", title, rows, _comparisons(rows))


def _contestants(bench: Bench, servers: str, ca_file: str) -> list[Contestant]:
    found = []
    for value_bytes, (full, quick) in SIZES.items():
        plain = Job(
            work="",
            records=bench.size(full, quick),
            warmup_records=bench.size(20_000, 1_000),
            value_bytes=value_bytes,
        )
        secured = replace(plain, secured_servers=servers, ca_file=ca_file)
        for loop, work in WORKS.items():
            for name, job in (("TLS", secured), ("plaintext", plain)):
                variant = f"{value_bytes} B, {loop}, {name}"
                found.append(Contestant(OURS, variant, replace(job, work=f"ours_with_tls.{work}")))
        confluent = replace(secured, work="confluent.enqueue_with_callback")
        found.append(Contestant(CONFLUENT, f"{value_bytes} B, TLS", confluent))
        found.append(Contestant(OPENSSL, f"{value_bytes} B", replace(plain, work="ours_with_tls.encrypt")))
    return found


def _comparisons(rows: Sequence[Row]) -> list[Comparison]:
    found = []
    for size in SIZES:
        alone = median_of(rows, OPENSSL, f"{size} B", CPU)
        for loop in WORKS:
            over_tls, plain = f"{size} B, {loop}, TLS", f"{size} B, {loop}, plaintext"
            rate = ratio(median_of(rows, OURS, over_tls), median_of(rows, OURS, plain))
            found.append(Comparison(f"{size} B, {loop}: rate / plaintext", rate))
            cpu_tls, cpu_plain = median_of(rows, OURS, over_tls, CPU), median_of(rows, OURS, plain, CPU)
            extra = None if cpu_tls is None or cpu_plain is None else cpu_tls - cpu_plain
            found.append(Comparison(f"{size} B, {loop}: extra CPU / {OPENSSL}", ratio(extra, alone)))
        peer, ours = f"{size} B, TLS", f"{size} B, uvloop, TLS"
        of_rates = ratio(median_of(rows, OURS, ours), median_of(rows, CONFLUENT, peer))
        of_cpu = ratio(median_of(rows, OURS, ours, CPU), median_of(rows, CONFLUENT, peer, CPU))
        found.append(Comparison(f"{size} B, TLS: rate / {CONFLUENT}", of_rates))
        found.append(Comparison(f"{size} B, TLS: CPU / {CONFLUENT}", of_cpu))
    return found
