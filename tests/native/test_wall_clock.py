"""The time that a record gets which is given none."""

import time

from aioproducer._native.append import RecordAppender
from tests.fakes.core_parts import CoreParts


def test_wall_clock_counts_milliseconds() -> None:
    """Consumers search, and brokers delete, by it; within a second it must not run slower."""
    core = CoreParts()
    refuse = core.events.raise_not_accepting
    appender = RecordAppender(core.open_batches, refuse=refuse, batch_size=16_384, max_record_size=100_000)
    seen: set[int] = set()

    while len(seen) < 3:
        before = time.time_ns() // 1_000_000
        seen.add(now := appender.wall_clock_ms())
        assert before <= now <= time.time_ns() // 1_000_000
