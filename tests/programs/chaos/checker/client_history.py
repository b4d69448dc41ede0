"""The history of each client in memory: a few bytes a record, by the record's position n.

Loading checks what a history must be in itself (ENDS_ONCE): positions without gaps, one outcome each, all in time.
"""

import dataclasses
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.programs.chaos.checker.history_file import Kind, Row, read_history
from tests.programs.chaos.checker.verdict import Verdict


class ClientHistory:
    """History of one client: arrays with an element for each of its records."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.outcome = bytearray()  # `Kind` of the outcome; INVOKE while there is none
        self.topic = bytearray()
        self.partition = array("h")  # asked for; replaced by what an acknowledgement says
        self.is_chosen = bytearray()  # 1 where the client left the partition to the producer
        self.offset = array("q")
        self.sent_ms = array("q")
        self.invoked_us = array("q")
        self.ended_us = array("q")
        self.acknowledged_us = array("q")

    def __len__(self) -> int:
        return len(self.outcome)

    def take(self, row: Row, verdict: Verdict) -> None:
        if row.kind == Kind.INVOKE:
            self._invoke(row, verdict)
        else:
            self._end(row, verdict)

    def _invoke(self, row: Row, verdict: Verdict) -> None:
        if row.n != len(self):
            verdict.add("ENDS_ONCE", f"client {self.client} invoked n={row.n} after {len(self)} records")
            return
        self.outcome.append(Kind.INVOKE)
        self.topic.append(row.topic)
        self.partition.append(row.partition)
        self.is_chosen.append(row.partition < 0)
        self.offset.append(-1)
        self.sent_ms.append(row.timestamp)
        self.invoked_us.append(row.time_us)
        self.ended_us.append(0)

    def _end(self, row: Row, verdict: Verdict) -> None:
        n = row.n
        if n >= len(self) or self.outcome[n] != Kind.INVOKE:
            verdict.add("ENDS_ONCE", f"client {self.client} n={n} ended again, or before it was invoked: {row}")
            return
        self.outcome[n] = row.kind
        self.ended_us[n] = row.time_us
        if row.kind != Kind.OK:
            return
        self.acknowledged_us.append(row.time_us)
        if self.partition[n] not in {-1, row.partition} or row.topic != self.topic[n]:
            verdict.add("RECORD_METADATA", f"client {self.client} n={n} asked for {self.partition[n]}, told {row}")
        if row.timestamp != self.sent_ms[n]:
            verdict.add("RECORD_METADATA", f"client {self.client} n={n} sent at {self.sent_ms[n]}, told {row}")
        self.partition[n], self.offset[n] = row.partition, row.offset

    def first_acknowledged_after(self, time_us: int) -> int | None:
        index = bisect_left(self.acknowledged_us, time_us)
        return self.acknowledged_us[index] if index < len(self.acknowledged_us) else None


Histories = dict[int, ClientHistory]


def load_histories(files: Iterable[Path], verdict: Verdict) -> Histories:
    histories: Histories = {}
    for file in files:
        for row in read_history(file):
            history = histories.get(row.client)
            if history is None:
                history = histories[row.client] = ClientHistory(row.client)
            history.take(row, verdict)
    return histories


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """Longest life of a client's records."""

    limit_us: int  # the delivery timeout, the time a call may block, and what a busy machine needs
    lags: Sequence[tuple[int, int]]  # times when the client's process did not run, in microseconds: its clock did


def check_endings(history: ClientHistory, deadline: Deadline, verdict: Verdict) -> int:
    longest = 0
    for n, outcome in enumerate(history.outcome):
        if outcome == Kind.INVOKE:
            verdict.add("ENDS_ONCE", f"client {history.client} n={n} never ended")
            continue
        life = history.ended_us[n] - history.invoked_us[n]
        if life > deadline.limit_us:
            life -= overlap(history.invoked_us[n], history.ended_us[n], deadline.lags)
        longest = max(longest, life)
        if life > deadline.limit_us:
            verdict.add("ENDS_ONCE", f"client {history.client} n={n} ended after {life / 1e6:.1f} s")
    return longest


def overlap(start: int, end: int, intervals: Iterable[tuple[int, int]]) -> int:
    """Return how much of start..end lies in the intervals."""
    return sum(max(0, min(end, until) - max(start, since)) for since, until in intervals)
