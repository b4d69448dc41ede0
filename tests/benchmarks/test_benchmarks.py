"""The benchmark on the embedded cluster, short: scenarios run, and every count is the broker's."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster
from tests.benchmarks.clients.raw_socket import prepared_request
from tests.benchmarks.job import Job, Outcome, percentile
from tests.benchmarks.report import BenchReport, Comparison, Row, ScenarioReport, comparison_cells, ratio, table_of
from tests.benchmarks.scenarios import AWAITED, CALLED_BACK, ENQUEUE, ENQUEUED, HOOKS, JAVA, TRANSACTIONS
from tests.outbox.postgres import missing_for_postgres

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.benchmarks", "--embedded", "--quick"]


@pytest.mark.slow
@pytest.mark.timing
def test_benchmark_runs_on_the_embedded_cluster(tmp_path: Path) -> None:
    """In processes of their own, with a broker that stops on the way; no count differs from the broker's."""
    file = tmp_path / "bench.json"
    scenarios = ["enqueue", "spread", "stalled", "import"]
    arguments = [*(f"--only={name}" for name in scenarios), "--client=aioproducer", "--client=raw socket"]
    ended = subprocess.run(
        [*COMMAND, *arguments, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200
    )

    assert ended.returncode == 0, ended.stderr
    found = json.loads(file.read_text("utf-8"))["scenarios"]
    measured = {each["measure"] for scenario in found for each in scenario["comparisons"] if each["value"] is not None}
    assert [scenario["name"] for scenario in found] == scenarios
    assert "256 KiB: rate / raw socket" in measured
    assert "20 partitions, then 10 ms pause: CPU / one awaited record" in measured
    assert "send without await, 100 B: refused" in measured
    assert "defaults: rate / aiokafka" not in measured


@pytest.mark.nightly
@pytest.mark.slow(seconds=40)
@pytest.mark.skipif(bool(missing_for_postgres()), reason=missing_for_postgres() or "-")
def test_outbox_is_measured_on_the_embedded_cluster(tmp_path: Path) -> None:
    """Both relays send every row, since each ends only then."""
    file = tmp_path / "bench.json"
    command = [*COMMAND, "--only=outbox", "--json", str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(file.read_text("utf-8"))["scenarios"]
    assert len(found["comparisons"]) == 9
    assert all(each["value"] > 0 for each in found["comparisons"])


WORKS = [
    *(work for client, (work, *_) in ENQUEUE.items() if client != JAVA),
    *(f"ours_with_hooks.{work}" for work in HOOKS.values()),
    *TRANSACTIONS.values(),
    *ENQUEUED.values(),
    *CALLED_BACK.values(),
    "ours_with_presets.send_to_mock",
    *("confluent.enqueue_text", "ours.await_sends", *(work for work, *_ in AWAITED.values()), "ours.enqueue_in_turn"),
    *("ours.enqueue_to_all", "ours.enqueue_to_topics_in_turn", "confluent.enqueue_to_topics_in_turn"),
    *(f"ours_observed.{work}" for work in ("plain", "scraped", "traced", "avro", "explain")),
    *(
        "ours.latency",
        "ours.latency_on_asyncio",
        "confluent.latency",
        "confluent_in_asyncio.latency",
        "aiokafka.latency",
        "raw_socket.latency",
        "raw_socket.transact",
    ),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of kafka-python
@pytest.mark.parametrize("work", WORKS)
def test_client_counts_what_the_log_has(work: str) -> None:
    """Warm-up and markers of transactions included."""
    module, _, function = work.partition(".")
    with FakeCluster.in_thread(1, topics={"t": 4}) as cluster:
        job = Job(
            work=work,
            bootstrap_servers=cluster.bootstrap_servers,
            topic="t",
            records=40,
            warmup_records=8,
            tasks=4,
            per_transaction=20,
        )
        outcome: Outcome = getattr(importlib.import_module(f"tests.benchmarks.clients.{module}"), function)(job)
        stored = sum(cluster.end_offset("t", number) for number in range(4))

    assert outcome.acknowledged == stored
    assert all(value > 0 for value in outcome.figures.values())


OURS = Row("aioproducer", "defaults", {"records_per_s": [900_000.0, 1_000_000.0, 1_100_000.0]}, {"linger_ms": "5"})
PEER = Row("peer", "defaults", {"records_per_s": [250_000.0]})
SCENARIO = ScenarioReport("enqueue", "How many", [OURS, PEER], [Comparison("rate / peer", 4.0)], ["a note"])


def test_table_has_medians_ranges_and_ratios() -> None:
    """Ours has no ratio to itself, and a single round has no range."""
    headings, lines = table_of(SCENARIO)

    assert headings == ["client", "settings", "records/s", "ours / it"]
    assert lines == [
        ["aioproducer", "defaults", "1,000,000 (900,000 - 1,100,000)", ""],
        ["peer", "defaults", "250,000", "4.00"],
    ]


def test_table_without_other_clients_has_no_ratios() -> None:
    headings, lines = table_of(ScenarioReport("enqueue", "How many", [OURS]))

    assert headings == ["client", "settings", "records/s"]
    assert len(lines[0]) == 3


def test_comparison_has_value_and_unit() -> None:
    """Or says that nothing was measured."""
    assert comparison_cells(Comparison("lag", 4.256, unit="ms")) == ["lag", "4.26 ms"]
    assert comparison_cells(Comparison("refused", 2_987_351, unit="records")) == ["refused", "2,987,351 records"]
    assert comparison_cells(Comparison("rate / peer", None)) == ["rate / peer", "not measured"]


def test_document_can_be_read_again() -> None:
    """The performance page is made from it."""
    report = BenchReport("2026-01-01T00:00:00+00:00", "--quick", {"cores": "2"}, {"peer": "1.0"}, scenarios=[SCENARIO])

    assert BenchReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    "value, other, expected", [(6.0, 3.0, 2.0), (6.0, 0.0, None), (None, 3.0, None), (6.0, None, None)]
)
def test_ratio_needs_both_values(value: float | None, other: float | None, expected: float | None) -> None:
    """It is None if the divisor is 0, too."""
    assert ratio(value, other) == expected


@pytest.mark.parametrize("percent, expected", [(1, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (99, 4.0), (100, 4.0)])
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    """A measured value, never one in between."""
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == expected


def test_prepared_request_has_a_full_batch_for_each_partition() -> None:
    """As many records as fit in the batch size."""
    job = Job(work="", topic="t", partitions=4)

    body, records = prepared_request(job, 16_384)

    assert records % 4 == 0
    assert 4 * (16_384 - 110) < len(body) < 4 * 16_384 + 200
    assert body.count(job.value) == records


def test_job_and_outcome_survive_json() -> None:
    job = Job(work="ours.enqueue", records=5, batch_size=262_144)
    outcome = Outcome(5, {"records_per_s": 1.5}, {"linger_ms": "5"})

    assert Job.from_json(job.to_json()) == job
    assert Outcome.from_json(outcome.to_json()) == outcome
