"""Actions of the brokers at later times: a heap, driven by the owner of the clock."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count


@dataclass(slots=True, eq=False)
class Appointment:
    """An action at a time; can be cancelled."""

    when: float
    action: Callable[[float], None] | None

    def cancel(self) -> None:
        """Cancel; harmless when it has run."""
        self.action = None


class Schedule:
    """Appointments by time, and by the order in which they were made within one time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Appointment]] = []
        self._numbers = count()

    def at(self, when: float, action: Callable[[float], None]) -> Appointment:
        """Have `action(now)` run at `when`, in seconds of the driver's clock."""
        appointment = Appointment(when, action)
        heapq.heappush(self._heap, (when, next(self._numbers), appointment))
        return appointment

    def next_at(self) -> float | None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> None:
        """Run all that is due at `now`, oldest first, including what these actions schedule up to `now`."""
        while (when := self.next_at()) is not None and when <= now:
            appointment = heapq.heappop(self._heap)[2]
            action, appointment.action = appointment.action, None
            if action is not None:
                action(now)
