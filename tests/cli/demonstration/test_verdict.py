"""The verdict: what decides, and the words for it."""

from dataclasses import replace

import pytest

from aioproducer.cli.demonstration.delivery_check import DeliveryReport, Fault
from aioproducer.cli.demonstration.verdict import BrokerDeath, ErrorAction, verdict_lines
from aioproducer.metrics import ProducerStatistics

REPORT = DeliveryReport(sent=336_776, read=336_776, keys=4_043, without_key=2_512)
GOOD = ErrorAction(
    report=REPORT,
    undelivered=None,
    death=BrokerDeath(2, (1, 4), moved_after_s=0.52),
    statistics=ProducerStatistics(
        client_id="demo",
        batch_bytes=114_000_000,
        records_retried=1_203,
        delivery_latency_p50_s=0.0061,
        delivery_latency_p99_s=0.508,
    ),
    sent_in_s=24.0,
    read_in_s=3.1,
)


def test_good_verdict_has_its_figures() -> None:
    """All of them, in 60 columns."""
    assert GOOD.holds
    assert list(verdict_lines(GOOD)) == [
        "PASSED: every record came back, once, unaltered, in order.",
        "  sent         336,776  in 24.0 s: 14,032/s, 4.8 MB/s",
        "  read back    336,776  in 3.1 s by aiokafka's consumer",
        "  missing            0",
        "  twice              0",
        "  altered            0",
        "  disorder           0",
        "  keys           4,043  (2,512 records without, so no order)",
        "  latency    p50 6.1 ms, p99 508 ms; 1,203 sent again",
        "  broker 2 killed; its 2 partitions moved within 0.5 s",
    ]
    assert max(map(len, verdict_lines(GOOD))) <= 60


FAULT = Fault(2, [7, 9])


@pytest.mark.parametrize(
    "report",
    [
        replace(REPORT, missing=FAULT),
        replace(REPORT, doubled=FAULT),
        replace(REPORT, altered=FAULT),
        replace(REPORT, disordered=FAULT),
        replace(REPORT, unknown=FAULT),
    ],
    ids=["missing", "doubled", "altered", "disordered", "unknown"],
)
def test_any_fault_fails(report: DeliveryReport) -> None:
    """And is shown with where to look."""
    verdict = replace(GOOD, report=report)

    lines = list(verdict_lines(verdict))

    assert not verdict.holds
    assert lines[0] == "FAILED: what was read back is not what was sent."
    assert len([line for line in lines if line.endswith("2  first at rows 7, 9")]) == 1


def test_undelivered_records_fail() -> None:
    """Even if everything was read."""
    verdict = replace(GOOD, undelivered="3 records were not delivered")

    assert not verdict.holds
    assert list(verdict_lines(verdict))[-1] == "  undelivered: 3 records were not delivered"


@pytest.mark.parametrize(
    "death, said",
    [
        (None, "  no broker was killed"),
        (BrokerDeath(2, (1, 4)), "  broker 2 killed; its partitions found no new leader"),
    ],
    ids=["nobody died", "no new leader"],
)
def test_show_without_its_drama_fails(death: BrokerDeath | None, said: str) -> None:
    """It would show nothing."""
    verdict = replace(GOOD, death=death)

    assert not verdict.holds
    assert next(iter(verdict_lines(verdict))).startswith("FAILED: no broker died")
    assert list(verdict_lines(verdict))[-1] == said
