"""What the audience sees of a running demo: the show writes it, the screens read it."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from aioproducer.metrics import LatencyHistogram, ProducerStatistics

WINDOW_S = 2.0
"""Rates are those of so long a time before now."""


class Phase(StrEnum):
    """What is going on."""

    PREPARING = "preparing"
    SENDING = "sending"
    TRANSFERRING = "transferring"
    READING = "reading back"


@dataclass(slots=True)
class Progress:
    """One demo, as far as it got."""

    cluster: str
    """What it plays on, in words."""

    total: int
    """Records to be sent."""

    noun: str = "records"
    """What is counted."""

    source: str = ""
    """What the records are, in words."""

    phase: Phase = Phase.PREPARING
    done: int = 0
    """Records loaded, acknowledged or read, by the phase."""

    elapsed_s: float = 0.0
    """Since the sending began."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Of a sample of the records delivered in the last `WINDOW_S`."""

    statistics: ProducerStatistics | None = None
    in_flight: dict[int, int] = field(default_factory=dict)
    """Broker -> the most requests on their way to it at once, of late."""

    nodes: tuple[int, ...] = ()
    """All brokers there were at the start."""

    leaders: dict[int, int] = field(default_factory=dict)
    """Partition -> broker that leads it, -1 while none does."""

    killed: int | None = None
    """The broker that was killed."""

    events: list[str] = field(default_factory=list)
    """What happened, oldest first."""

    def begin(self, phase: Phase) -> None:
        """A new phase has a count and a rate of its own."""
        self.phase = phase
        self.done = 0
        self.records_per_s = self.bytes_per_s = 0.0
        self.in_flight = {}

    def happened(self, what: str) -> None:
        """Note an event, with its time."""
        self.events.append(f"{self.elapsed_s:5.1f} s  {what}")


class RateMeter:
    """Records and bytes a second, over the last `WINDOW_S`."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def rates(self, now: float, records: int, size_bytes: int) -> tuple[float, float]:
        """Take the totals of now; returns records and bytes a second."""
        self._samples.append((now, records, size_bytes))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:  # noqa: PLR2004 - a rate needs two
            self._samples.popleft()
        then, records_then, bytes_then = self._samples[0]
        if now <= then:
            return 0.0, 0.0
        return (records - records_then) / (now - then), (size_bytes - bytes_then) / (now - then)
