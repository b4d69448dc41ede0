"""Kafka's own Java producer, driven by Kafka's own load generator."""

import re
import resource
import subprocess
import tempfile
from pathlib import Path

from aioproducer.testing.kafka.programs import java_command
from tests.benchmarks.job import Job, Outcome, as_text

MAIN_CLASS = "org.apache.kafka.tools.ProducerPerformance"

HEAP = ("-Xmx512m",)
"""The heap that `kafka-producer-perf-test.sh` sets."""

TOTALS = re.compile(
    r"^(?P<records>\d+) (?P<kind>steady state )?records sent, (?P<rate>[\d.]+) records/sec .*th,", re.MULTILINE
)
"""A line of totals, which ends with percentiles, unlike lines of progress."""


def enqueue(job: Job) -> Outcome:
    """Send a file of payloads at full speed, after a warm-up that lets the JVM compile.

    The rate is from its own "steady state" line. CPU time is that of the whole JVM with start and warm-up.
    """
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".txt") as payloads:
        payloads.write(job.value.decode() + "\n")
        payloads.flush()
        printed = subprocess.run(_command(job, Path(payloads.name)), check=True, capture_output=True, text=True).stdout
    totals = {match["kind"] or "": match for match in TOTALS.finditer(printed)}
    sent = int(totals[""]["records"])
    steady = totals.get("steady state ", totals[""])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "records_per_s": float(steady["rate"]),
        "cpu_us_per_record": (usage.ru_utime + usage.ru_stime) / sent * 1e6,
    }
    return Outcome(sent, figures, as_text(_configuration(job)))


def _command(job: Job, payloads: Path) -> list[str]:
    properties = [f"{name}={value}" for name, value in _configuration(job).items()]
    arguments = [
        *("--bootstrap-server", job.bootstrap_servers, "--topic", job.topic, "--throughput", "-1"),
        *("--num-records", str(job.warmup_records + job.records), "--warmup-records", str(job.warmup_records)),
        *("--payload-file", str(payloads), "--command-property", *properties),
    ]
    return java_command(Path(job.java_jars), MAIN_CLASS, arguments, options=HEAP)


def _configuration(job: Job) -> dict[str, object]:
    configuration: dict[str, object] = {"acks": "all", "enable.idempotence": "true", "linger.ms": job.linger_ms}
    if job.batch_size is not None:
        configuration["batch.size"] = job.batch_size
    return configuration
