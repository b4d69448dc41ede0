"""The verdict of a soak sees what it is there to see."""

import dataclasses

from tests.programs.soak.read_back import PartitionLog
from tests.programs.soak.verdict import Sample, grown, wrong

STEADY = Sample(
    at_s=0.0,
    rss_mib=80.0,
    objects=40_000,
    tasks=9,
    files=29,
    threads=8,
    lag_ms=1.0,
    rate=100_000,
    buffer_mib=2.0,
    retried=0,
    failed=0,
)
ACCEPTED = [1_000, 1_000]


def run_of(**slopes: float) -> list[Sample]:
    """Samples of a hundred steps; each named figure grows by so much in all."""
    return [
        dataclasses.replace(
            STEADY,
            at_s=5.0 * step,
            **{
                field: type(getattr(STEADY, field))(getattr(STEADY, field) + step / 99 * slopes[field])
                for field in slopes
            },
        )
        for step in range(100)
    ]


def log_of(**changed: object) -> PartitionLog:
    return dataclasses.replace(PartitionLog(end_offset=1_000, read=1_000, last_number=999), **changed)  # type: ignore[arg-type]


def test_steady_run_has_grown_nothing() -> None:
    samples = [
        dataclasses.replace(each, rss_mib=each.rss_mib + step % 7) for step, each in enumerate(run_of(lag_ms=50.0))
    ]

    assert grown(samples) == []


def test_growth_is_seen() -> None:
    found = grown(run_of(rss_mib=60.0, objects=8_000, tasks=30, files=30, threads=3))

    assert [each.split()[0] for each in found] == ["memory", "objects", "tasks:", "files:", "threads:"]


def test_log_that_holds_every_record_once_is_right() -> None:
    assert wrong({0: log_of(), 1: log_of()}, ACCEPTED, 0) == []


def test_lost_doubled_and_swapped_records_are_seen() -> None:
    lost = log_of(end_offset=999, last_number=998)
    doubled = log_of(end_offset=1_001, disorder=["number 7 after 7 at offset 8"])

    found = wrong({0: lost, 1: doubled}, ACCEPTED, 0)

    assert len([each for each in found if each.startswith("partition 0")]) == 2
    assert len([each for each in found if each.startswith("partition 1")]) == 2


def test_failed_records_are_no_pass() -> None:
    assert wrong({0: log_of(), 1: log_of(end_offset=998)}, ACCEPTED, 2) != []
