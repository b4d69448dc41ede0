"""The verdict of a demo and the words for it; 60 columns hold every line."""

from collections.abc import Iterator
from dataclasses import dataclass

from aioproducer.cli.demonstration.delivery_check import DeliveryReport, Fault
from aioproducer.cli.demonstration.figures import count_of, megabytes, milliseconds
from aioproducer.metrics import ProducerStatistics


@dataclass(slots=True)
class BrokerDeath:
    """One broker killed while records were on their way to it."""

    node_id: int
    led: tuple[int, ...]
    """Partitions it led."""

    moved_after_s: float | None = None
    """Until each of them had another leader; None if that was never seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAction:
    """All that decides and all that is shown at the end."""

    report: DeliveryReport
    undelivered: str | None
    """What the producer said it could not deliver; None for nothing."""

    death: BrokerDeath | None
    """None if it never came to that."""

    statistics: ProducerStatistics
    sent_in_s: float
    read_in_s: float

    @property
    def holds(self) -> bool:
        """Whether all that the demo promises was kept."""
        moved = self.death is not None and self.death.moved_after_s is not None
        return self.report.holds and self.undelivered is None and moved


def verdict_lines(verdict: ErrorAction) -> Iterator[str]:
    """The verdict as text, its first line the sentence that counts."""
    report, statistics = verdict.report, verdict.statistics
    yield _sentence(verdict)
    seconds = max(verdict.sent_in_s, 1e-9)
    yield (
        f"  sent       {report.sent:>9,}  in {verdict.sent_in_s:.1f} s: {report.sent / seconds:,.0f}/s, "
        f"{megabytes(statistics.batch_bytes / seconds)}/s"
    )
    yield f"  read back  {report.read:>9,}  in {verdict.read_in_s:.1f} s by aiokafka's consumer"
    yield from _faults(report)
    yield f"  keys       {report.keys:>9,}  ({count_of(report.without_key, 'record')} without, so no order)"
    yield (
        f"  latency    p50 {milliseconds(statistics.delivery_latency_p50_s)}, "
        f"p99 {milliseconds(statistics.delivery_latency_p99_s)}; "
        f"{statistics.records_retried:,} sent again"
    )
    yield from _death(verdict.death)
    if verdict.undelivered is not None:
        yield f"  undelivered: {verdict.undelivered}"


def _sentence(verdict: ErrorAction) -> str:
    """What to remember."""
    if verdict.holds:
        return "PASSED: every record came back, once, unaltered, in order."
    if not verdict.report.holds or verdict.undelivered is not None:
        return "FAILED: what was read back is not what was sent."
    return "FAILED: no broker died, or its partitions found no leader."


def _faults(report: DeliveryReport) -> Iterator[str]:
    """One line for each kind of fault, also for those that did not happen."""
    faults = {
        "missing": report.missing,
        "twice": report.doubled,
        "altered": report.altered,
        "disorder": report.disordered,
        "unknown": report.unknown,
    }
    for name, fault in faults.items():
        if fault.count or fault is not report.unknown:
            yield f"  {name:<10} {fault.count:>9,}{_examples(fault)}"


def _examples(fault: Fault) -> str:
    """The first rows a fault was found at."""
    return f"  first at rows {', '.join(map(str, fault.rows))}" if fault.rows else ""


def _death(death: BrokerDeath | None) -> Iterator[str]:
    """How the cluster took it."""
    if death is None:
        yield "  no broker was killed"
    elif death.moved_after_s is None:
        yield f"  broker {death.node_id} killed; its partitions found no new leader"
    else:
        led = count_of(len(death.led), "partition")
        yield f"  broker {death.node_id} killed; its {led} moved within {death.moved_after_s:.1f} s"
