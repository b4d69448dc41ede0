"""Losses with acks=1: which of them the death of a leader explains.

With acks=1 the leader answers before its followers have the record. If it then dies, freezes, restarts or hands over,
the next leader's log may end earlier, and what was beyond is gone. Such a loss leaves marks, and all are asked for:

- in the log, a later leader epoch: what stands at the lost offset now, or first after it, was written under a later
  epoch than the client's last record before the lost one; or nothing stands there at all;
- in the history, the end of the partition's leader, not long before or after the acknowledgement: a fault that took
  it, or a watcher of the cluster saw that another node leads (a node that is starved loses what it leads, too).
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TypedDict

LAG_US = 30_000_000  # a follower may be that far behind and still become leader (`replica.lag.time.max.ms`)

ANSWER_US = 15_000_000
"""An acknowledgement may be read that long after its leader lost its place: a frozen node, a slow link."""


class Event(TypedDict, total=False):
    """A fault as the nemesis wrote it; times in microseconds of the histories' clock."""

    kind: str
    nodes: list[int]
    clients: list[int]  # clients of the stopped process: from this number, below that one; empty if there is none
    leaders: dict[str, dict[str, int]]
    begin_us: int
    end_us: int
    healed_us: int  # time when every partition had a leader again and every port answered
    moved: list[list[int]]  # topic number and partition of each leader change between `begin_us` and `end_us`


class PartitionLog:
    """Offsets and leader epochs of one partition as it was found, in order."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.epochs = array("i")

    def append(self, offset: int, epoch: int) -> None:
        self.offsets.append(offset)
        self.epochs.append(epoch)

    def epoch_from(self, offset: int) -> int | None:
        """Leader epoch of the first record at `offset` or after it; `None` beyond the end."""
        index = bisect_left(self.offsets, offset)
        return self.epochs[index] if index < len(self.epochs) else None


def explained(epochs: tuple[int, int | None], place: tuple[int, int], *, when_us: int, events: Sequence[Event]) -> bool:
    """Whether a lost record's leader died.

    Args:
        epochs: of the client's last record before it that is in the log (-1: there is none), and of what stands in
            its place (`None`: nothing).
        place: topic number and partition.
        when_us: when it was acknowledged.
        events: the faults of the cell.
    """
    before, after = epochs
    if after is not None and after <= before:
        return False
    topic, partition = place
    return any(_took_leader(event, str(topic), str(partition), when_us=when_us) for event in events)


def _took_leader(event: Event, topic: str, partition: str, *, when_us: int) -> bool:
    """Whether a fault that was on then took the leader of the partition."""
    if not event.get("begin_us", 0) - LAG_US <= when_us <= event.get("end_us", 0) + ANSWER_US:
        return False
    if "moved" in event:
        return [int(topic), int(partition)] in event["moved"]
    leaders: Mapping[str, int] = event.get("leaders", {}).get(topic, {})
    return partition not in leaders or leaders[partition] in event.get("nodes", [])
