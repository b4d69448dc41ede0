"""The bars the figures are held against: what must be reached, what is aimed at, and what was. Pure."""

from dataclasses import dataclass
from enum import Enum


class ErrorAction(Enum):
    """Where a figure stands."""

    AIM_REACHED = "aim reached"
    REACHED = "reached"
    BELOW_AIM = "below the aim"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    measure: str
    """In words: "enqueue, defaults: times confluent-kafka"."""

    value: float | None
    """What was measured; `None`: nothing, a peer is not installed."""

    must: float | None
    """`None`: there is only an aim."""

    aim: float | None = None
    unit: str = "x"
    is_upper_limit: bool = False
    """Whether less is better."""

    @property
    def verdict(self) -> ErrorAction:
        """Where `value` stands."""
        if self.value is None:
            return ErrorAction.NOT_MEASURED
        if self.must is not None and not self._reaches(self.value, self.must):
            return ErrorAction.MISSED
        if self.aim is not None and self._reaches(self.value, self.aim):
            return ErrorAction.AIM_REACHED
        return ErrorAction.REACHED if self.must is not None else ErrorAction.BELOW_AIM

    def _reaches(self, value: float, mark: float) -> bool:
        return value <= mark if self.is_upper_limit else value >= mark
